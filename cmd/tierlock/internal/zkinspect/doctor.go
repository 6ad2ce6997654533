package zkinspect

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math"
	"strings"

	"github.com/go-zookeeper/zk"

	"github.com/tierlock/tierlock/cmd/tierlock/internal/inspect"
	"github.com/tierlock/tierlock/internal/zkqueue"
)

// An examination is a report to which findings are still added.
type examination struct{ *inspect.Report }

// Examine reads a lock path and returns findings about it.
func (r Reader) Examine(ctx context.Context, path string) (*inspect.Report, error) {
	access := r.checkPermissions(ctx, path)
	if access != nil && !errors.Is(access, zk.ErrNoAuth) {
		return nil, access
	}
	q, err := r.Look(ctx, path)
	if errors.Is(err, zk.ErrNoAuth) { // everything else is unknown
		return &inspect.Report{
			Queue:    &inspect.Queue{Path: path, Exists: true, Contenders: []inspect.Contender{}, Others: []inspect.Other{}},
			Findings: []inspect.Finding{{Grade: inspect.Problem, Text: access.Error()}},
		}, nil
	}
	if err != nil {
		return nil, err
	}
	content, stat, err := r.contentOf(ctx, path)
	if err != nil {
		return nil, err
	}
	e := examination{&inspect.Report{Queue: q}}
	e.examineAccess(access)
	e.examineNumbers(content == zkqueue.ContainerData && stat.Aversion == 0) // true if zklock can delete the path and create it again
	e.examineMixture()
	e.examineSemaphore(content)
	e.examineSessions()
	for i := range q.Contenders {
		e.examineContender(i)
	}
	for _, o := range q.Others {
		e.examineOther(o)
	}
	return e.Report, nil
}

// checkPermissions returns nil if a client's credentials are enough to queue for the lock at a path and to release it. This takes CREATE,
// DELETE and READ on the path. If the path does not exist, it takes CREATE on the nearest existing node above it. Otherwise the error wraps
// [zk.ErrNoAuth] and names the first missing permission.
//
// checkPermissions sends a transaction that cannot succeed, so nothing changes.
func (r Reader) checkPermissions(ctx context.Context, path string) error {
	_, err := ask(ctx, r.Client, "permissions for", path, func(p zkqueue.Path) (none struct{}, err error) {
		return none, tryPermissions(p)
	})
	return err
}

// tryPermissions sends all operations of a process that queues, followed by an operation that fails.
func tryPermissions(lock zkqueue.Path) error {
	for path := lock; ; path.Name = path.Name[:strings.LastIndexByte(path.Name, '/')] {
		on := cmp.Or(path.Name, "/")
		try := path.Node(zkqueue.NewID() + "permissions")
		ops := []any{&zk.CreateRequest{Path: try, Acl: zk.WorldACL(zk.PermAll), Flags: zk.FlagEphemeral}}
		needs := []string{"CREATE"}
		if path == lock {
			ops = append(ops, &zk.DeleteRequest{Path: try, Version: -1})
			needs = append(needs, "DELETE", "READ")
		}
		ops = append(ops, &zk.CheckVersionRequest{Path: on, Version: math.MaxInt32})
		results, err := path.Conn.Multi(ops...)
		if errors.Is(err, zk.ErrNoNode) && path.Name != "" {
			continue
		}
		return permissionsOf(results, err, on, needs)
	}
}

// permissionsOf returns what the results of the operations show. The last operation always fails.
func permissionsOf(results []zk.MultiResponse, err error, path string, needs []string) error {
	for i, r := range results {
		switch {
		case r.Error == nil:
		case i < len(needs) && errors.Is(r.Error, zk.ErrNoAuth):
			return zkqueue.Lacking(needs[i], path, zk.ErrNoAuth)
		case i == len(results)-1 && (errors.Is(r.Error, zk.ErrBadVersion) || errors.Is(r.Error, zk.ErrNoAuth)):
			return nil
		default:
			return r.Error
		}
	}
	return err
}

func (r examination) examineAccess(access error) {
	switch {
	case access != nil:
		r.Find(inspect.Problem, "", "these credentials cannot queue: %v", access)
	case r.Exists:
		r.Find(inspect.OK, "", "these credentials may queue: CREATE, READ and DELETE are permitted")
	default:
		r.Find(inspect.OK, "", "does not exist yet: the first process that queues creates the path, and these credentials may create it")
	}
}

func (r examination) examineNumbers(renewable bool) {
	used := fmt.Sprintf("%d of %d sequence numbers are used up", r.Next, zkqueue.LastSequence)
	switch {
	case !r.Exists:
	case r.Next > zkqueue.LastSequence:
		r.Find(inspect.Problem, "", "%s: no process can queue any more; delete the path when it is empty", used)
	case r.Next < zkqueue.RenewFrom:
		r.Find(inspect.OK, "", "%s", used)
	case !renewable || len(r.Others) > 0:
		r.Find(inspect.Warning, "", "%s, and tierlock cannot reset them: the path is not an unchanged container of its own, or has other "+
			"children; delete it once it is empty", used)
	default:
		r.Find(inspect.Note, "", "%s; tierlock resets them as soon as the queue is empty", used)
	}
}

// examineSessions adds what is known about the processes to which the nodes belong. A node exists as long as its session. The session
// outlives the process by up to the session timeout.
func (r examination) examineSessions() {
	sessions := make(map[string]bool)
	for _, c := range r.Contenders {
		if c.Ephemeral {
			sessions[c.Session] = true
		}
	}
	if len(sessions) > 0 {
		r.Find(inspect.OK, "", "sessions that own these nodes: %d; a process that has died stays in the queue until its session times out",
			len(sessions))
	}
	r.FindLongWait()
}

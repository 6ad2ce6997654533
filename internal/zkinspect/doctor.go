package zkinspect

import (
	"context"
	"errors"
	"fmt"

	"github.com/go-zookeeper/zk"

	"github.com/tierlock/tierlock/internal/inspect"
	"github.com/tierlock/tierlock/zklock"
)

// An examination is a report that is being written.
type examination struct{ *inspect.Report }

// Examine looks at a lock path and says what to make of it.
func Examine(ctx context.Context, client *zklock.Client, lock *zklock.Lock) (*inspect.Report, error) {
	access := lock.CheckPermissions(ctx)
	if access != nil && !errors.Is(access, zk.ErrNoAuth) {
		return nil, access
	}
	q, err := look(ctx, client, lock.Path())
	if errors.Is(err, zk.ErrNoAuth) { // the rest is unknown
		return &inspect.Report{
			Queue:    &inspect.Queue{Path: lock.Path(), Exists: true, Contenders: []inspect.Contender{}, Others: []inspect.Other{}},
			Findings: []inspect.Finding{{Grade: inspect.Problem, Text: access.Error()}},
		}, nil
	}
	if err != nil {
		return nil, err
	}
	renewable, err := lock.Renewable(ctx)
	if err != nil && !errors.Is(err, zk.ErrNoAuth) && !errors.Is(err, zk.ErrNoNode) {
		return nil, err
	}
	content, err := contentOf(ctx, client, lock.Path())
	if err != nil {
		return nil, err
	}
	r := examination{&inspect.Report{Queue: q}}
	r.examineAccess(access)
	r.examineNumbers(renewable)
	r.examineMixture()
	r.examineSemaphore(content)
	r.examineSessions()
	for i := range q.Contenders {
		r.examineContender(i)
	}
	for _, o := range q.Others {
		r.examineOther(o)
	}
	return r.Report, nil
}

func (r examination) examineAccess(access error) {
	switch {
	case access != nil:
		r.Find(inspect.Problem, "", "these credentials cannot queue: %v", access)
	case r.Exists:
		r.Find(inspect.OK, "", "these credentials may queue: CREATE, READ and DELETE are permitted")
	default:
		r.Find(inspect.OK, "", "does not exist yet: the first to queue creates it, and these credentials may")
	}
}

// Sequence numbers have 31 bits. Paths are made anew from the half on, and the last ones are not used.
const (
	wornFrom     = 1 << 30
	lastSequence = 1<<31 - 1<<20 - 1
)

func (r examination) examineNumbers(renewable bool) {
	used := fmt.Sprintf("%d of %d sequence numbers are used up", r.Next, lastSequence)
	switch {
	case !r.Exists:
	case r.Next > lastSequence:
		r.Find(inspect.Problem, "", "%s: nobody can queue any more; delete the path when it is empty", used)
	case r.Next < wornFrom:
		r.Find(inspect.OK, "", "%s", used)
	case !renewable || len(r.Others) > 0:
		r.Find(inspect.Warning, "", "%s, and the path is not made anew by itself, because it is not a container that tierlock made "+
			"and nobody changed, or has children that are no lock nodes; delete it once it is empty", used)
	default:
		r.Find(inspect.Note, "", "%s; tierlock makes the path anew as soon as its queue is empty", used)
	}
}

// examineSessions says what can be known of the processes behind the nodes. A node is there as long
// as its session, which outlives the process by the session timeout.
func (r examination) examineSessions() {
	sessions := make(map[string]bool)
	for _, c := range r.Contenders {
		if c.Ephemeral {
			sessions[c.Session] = true
		}
	}
	if len(sessions) > 0 {
		r.Find(inspect.OK, "", "sessions that own these nodes: %d; a process that has died stays in the queue until its session times out", len(sessions))
	}
	r.FindLongWait()
}

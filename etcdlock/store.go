package etcdlock

import (
	"cmp"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/connectivity"
	"google.golang.org/grpc/status"

	"github.com/tierlock/tierlock/internal/etcdversion"
	"github.com/tierlock/tierlock/internal/queue"
	"github.com/tierlock/tierlock/internal/second"
)

// A store is the connection of this process to etcd. It uses a client that belongs to the program. A session is an etcd lease, and all keys
// of the process are attached to it.
type store struct {
	client  *clientv3.Client
	options options
	self    second.Description // describes this process in the values of its keys
	tier    *queue.Tier
	names   names
	past    past
	numbers sync.Map    // prefixes of the queues for permits that are known to have a total set by a Resize
	written sync.Map    // by key, the places of this process's contenders whose values are known
	detach  func() bool // from now on, the tier no longer ends when the program closes its client

	// stream is part of the metadata of new watches. The client opens one watch stream for each set of metadata. A new number therefore makes
	// the next watches use a new stream. The number changes when a stream does not respond, or refuses a watch.
	stream atomic.Int64

	mu      sync.Mutex         // guards the field below; locked before the mutex of a mirror
	mirrors map[string]*mirror // by prefix
}

// open returns a store that uses client, and starts its tier, which requests a lease.
func open(client *clientv3.Client, o options) *store {
	s := &store{client: client, options: o, self: second.Describe(o.Label), mirrors: make(map[string]*mirror)}
	s.tier = queue.New(queue.Config{
		Package: "etcdlock", Store: "etcd", Settings: o.Settings, Trouble: s.trouble, Paths: second.Components,
		Record: o.record, Lost: func(r queue.Ref) string { return "key " + keyOf(r) + " was deleted" },
	}, s)
	s.tier.Start()
	s.detach = context.AfterFunc(client.Ctx(), s.tier.End)
	return s
}

func (s *store) trouble() error {
	if s.client.ActiveConnection().GetState() == connectivity.TransientFailure {
		return s.away(errors.New("no connection"))
	}
	return nil
}

// away returns an error that says that etcd cannot be reached, and names the addresses that the client has tried.
func (s *store) away(why error) error {
	return fmt.Errorf("etcd cannot be reached at %s: %w", strings.Join(s.client.Endpoints(), ", "), why)
}

// Close does not close the client, because that belongs to the program.
func (s *store) Close() { s.detach() }

// Do sends the requests of a command. The context must have a deadline. Without one, the client would wait forever while there is no
// connection, or while a server hangs.
func (s *store) Do(ctx context.Context, c queue.Command) (a queue.Answer) {
	var err error
	switch c.Op {
	case queue.Open:
		a.Name, a.TTL, err = s.grant(ctx)
	case queue.Beat:
		a, err = s.renew(ctx, c)
	case queue.Audit:
		a.Present, err = s.attached(ctx, c.Session)
	case queue.Drop:
		for _, ref := range c.Among { // one request for each, since etcd may refuse any of them; the next audit finds what is left
			_, refusal := s.leave(ctx, c.Session, ref)
			err = cmp.Or(err, refusal)
		}
	case queue.Goodbye:
		_, err = s.client.Revoke(ctx, leaseOf(c.Session))
	case queue.Enter:
		a.View, a.Removed, err = s.enter(ctx, c)
	case queue.Try:
		a.View, err = s.try(ctx, c)
	case queue.Share:
		a.View, err = s.change(ctx, c, "shared", "true", func(p place) bool { return p.Shared })
	case queue.Weigh:
		a.View, err = s.change(ctx, c, "permits", strconv.Itoa(c.Weight), func(p place) bool { return p.Permits <= c.Weight })
	case queue.Leave:
		if c.Session == "" {
			a.Removed, err = s.remove(ctx, c.Ref)
		} else {
			a.Removed, err = s.leave(ctx, c.Session, c.Ref)
		}
	case queue.List:
		a.Queue, err = s.list(ctx, prefixOf(c.Ref))
	case queue.Ask:
		err = s.ask(ctx, c.Path)
	case queue.Save:
		err = s.save(ctx, c)
	case queue.Load:
		a.Value, err = s.load(ctx, c.Path)
	case queue.Resize:
		err = s.resize(ctx, c.Ref)
	default:
		err = denied{fmt.Errorf("%s: %w", c.Op, errors.ErrUnsupported)} // for example a Look: watches report all contenders, so no view has Again
	}
	return s.conclude(c, a, err)
}

// conclude completes the answer to a command whose last request ended with err.
func (s *store) conclude(c queue.Command, a queue.Answer, err error) queue.Answer {
	if other, ok := errors.AsType[otherNumber](err); ok {
		return queue.Answer{Outcome: queue.Denied, Err: err, Permits: other.permits}
	}
	a.Outcome, a.Err = outcomeOf(err), err
	switch {
	case a.Outcome == queue.Expired:
		a.Err = errors.New("the etcd lease has expired or was revoked")
	case a.Outcome == queue.Unknown && !answered(err):
		a.Away = s.away(err)
		if c.Op == queue.Open || c.Op == queue.Beat {
			// Without this call, grpc waits longer after each failure, up to two minutes, before it dials again.
			s.client.ActiveConnection().ResetConnectBackoff()
		}
	}
	if c.ID != "" && (a.Outcome == queue.Unknown || a.Outcome == queue.Denied) {
		s.names.doubt(c.Session)
	}
	return a
}

var errGone = errors.New("the key that has to be deleted does not exist")

// denied is an error of this package, not of etcd, that retrying cannot fix.
type denied struct{ error }

func (d denied) Unwrap() error { return d.error }

// outcomeOf returns the outcome of a request that ended with err. For an error that it does not recognize, the outcome is Unknown. For
// example, a server answers "request timed out" to a request that it may still apply later.
func outcomeOf(err error) queue.Outcome {
	switch {
	case err == nil:
		return queue.Done
	case errors.Is(err, second.ErrLocked):
		return queue.Locked
	case errors.Is(err, errGone):
		return queue.Gone
	case errors.Is(err, rpctypes.ErrLeaseNotFound):
		return queue.Expired
	case errors.Is(err, rpctypes.ErrAuthOldRevision): // permissions have just changed, so the request has to be sent again
		return queue.Unknown
	case slices.ContainsFunc([]error{rpctypes.ErrNoSpace, rpctypes.ErrCorrupt, rpctypes.ErrTooManyRequests}, func(refusal error) bool {
		return errors.Is(err, refusal)
	}): // these refusals end when an operator has handled an alarm, or the server has less load
		return queue.Failed
	case errors.As(err, new(denied)):
		return queue.Denied
	}
	switch codeOf(err) {
	case codes.PermissionDenied, codes.InvalidArgument, codes.OutOfRange, codes.Unimplemented:
		return queue.Denied
	}
	return queue.Unknown
}

// answered reports whether a request that ended with err was answered by etcd. A refusal is an answer.
func answered(err error) bool {
	switch codeOf(err) {
	case codes.Unavailable, codes.DeadlineExceeded, codes.Canceled, codes.Unknown:
		return false
	}
	return true
}

func codeOf(err error) codes.Code {
	var refusal rpctypes.EtcdError
	if errors.As(err, &refusal) {
		return refusal.Code()
	}
	return status.Code(err) // codes.Unknown for errors that do not come from grpc, such as the end of a context
}

// call sends a request that is not part of a command of the tier.
func (s *store) call(ctx context.Context, request func(context.Context) error) error {
	bounded, cancel := context.WithTimeout(ctx, s.tier.Patience())
	defer cancel()
	err := request(bounded)
	if !answered(err) {
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
		s.tier.Renew() // the renewal finds out whether etcd can be reached
	}
	return err
}

// grant requests a lease.
func (s *store) grant(ctx context.Context) (session string, ttl time.Duration, err error) {
	granted, err := s.client.Grant(ctx, int64(s.options.TTL/time.Second))
	if err != nil {
		return "", 0, err
	}
	ttl = time.Duration(granted.TTL) * time.Second
	switch {
	case ttl <= 0:
		return "", 0, denied{fmt.Errorf("etcd has granted a lease of %v, but the process requested %v", ttl, s.options.TTL)}
	case ttl > s.options.TTL:
		s.tier.Logger().Warn("etcdlock: the server raised the lease TTL", "asked", s.options.TTL, "granted", ttl)
	}
	session = strconv.FormatInt(int64(granted.ID), 16)
	s.names.begin(session)
	s.past.begin(granted.ResponseHeader)
	s.written.Clear()
	s.tier.Spawn(s.checkVersions)
	return session, ttl, nil
}

func leaseOf(session string) clientv3.LeaseID {
	id, _ := strconv.ParseInt(session, 16, 64) // cannot fail: the function grant has formatted it
	return clientv3.LeaseID(id)
}

// attached returns the contenders whose keys are attached to a lease.
func (s *store) attached(ctx context.Context, session string) (present []queue.Ref, err error) {
	answer, err := s.client.TimeToLive(ctx, leaseOf(session), clientv3.WithAttachedKeys())
	if err != nil {
		return nil, err
	}
	for _, key := range answer.Keys {
		present = append(present, refOf(string(key)))
	}
	return present, nil
}

// checkVersions warns about servers whose version is too old for the promises of this package. It asks each server once, and ignores
// servers that do not answer.
func (s *store) checkVersions() {
	for _, endpoint := range s.client.Endpoints() {
		ctx, cancel := context.WithTimeout(s.tier.Context(), s.tier.Patience())
		status, err := s.client.Status(ctx, endpoint)
		cancel()
		if err == nil && etcdversion.TooOld(status.Version) {
			s.tier.Logger().Warn("etcdlock: this server version can end leases early; another process may get a lock before its holder knows; "+
				"upgrade to "+etcdversion.Needed, "endpoint", endpoint, "version", status.Version)
		}
	}
}

// The type names stores the names of deleted keys of a session, so that new keys can use them again. etcd keeps the name of a deleted key
// until it compacts its history, and each read of a queue walks all kept names. With a new name for each key, a lock would become slower
// with each acquisition.
//
// A name can be used again once etcd has answered the deletion of its key. A command that is executed late does no harm to the next key of
// the same name: a delete requires the revision at which its own key was created, and a change requires the revision of the last write. But
// a command without an answer may create its key at any time, and the audit recognizes such a key only by its name. After the first command
// without an answer, all keys of the session therefore get new names.
type names struct {
	mu      sync.Mutex // guards the fields below
	session string
	free    []string // the last one is used first, so that few names are in use
	fresh   bool     // from now on, all names are new
}

// Name returns a name for a new key. No other key has that name.
func (s *store) Name(session string) string {
	n := &s.names
	n.mu.Lock()
	defer n.mu.Unlock()
	if last := len(n.free) - 1; last >= 0 && session == n.session && !n.fresh {
		name := n.free[last]
		n.free = n.free[:last]
		return name
	}
	return rand.Text()
}

func (n *names) begin(session string) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.session, n.free, n.fresh = session, nil, false
}

func (n *names) put(session, name string) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if session == n.session {
		n.free = append(n.free, name)
	}
}

func (n *names) doubt(session string) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.fresh = n.fresh || session == n.session
}

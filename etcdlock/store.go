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

// A store is the connection of this process to etcd, over a client that belongs to the program. A session is an etcd lease, under which
// all keys of the process are created.
type store struct {
	client  *clientv3.Client
	options options
	self    second.Description // what keys say of this process
	tier    *queue.Tier
	names   names
	past    past
	numbers sync.Map    // the prefixes of the queues for permits whose number was set, as far as is known
	written sync.Map    // the places of our contenders, by key, as far as what is there is known
	detach  func() bool // from the client

	// stream numbers the client's watch stream that new watches use. The client has one stream for each set of metadata. The number changes
	// when a stream stops responding or refuses a watch.
	stream atomic.Int64

	mu      sync.Mutex         // guards the field below; before that of a mirror
	mirrors map[string]*mirror // by prefix
}

// open returns a store over client and begins to ask for a lease.
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

// away returns the error that etcd cannot be reached, with the addresses that were tried.
func (s *store) away(why error) error {
	return fmt.Errorf("etcd cannot be reached at %s: %w", strings.Join(s.client.Endpoints(), ", "), why)
}

// Close leaves the client open.
func (s *store) Close() { s.detach() }

// Do sends the requests of a command. The context must have a deadline. Without a deadline, the client waits without end while there is no
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
		for _, ref := range c.Among { // one by one, as any may be refused; what is left is found again
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
		err = denied{fmt.Errorf("%s: %w", c.Op, errors.ErrUnsupported)} // every contender is reported unasked
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
			// Otherwise grpc waits longer and longer, up to two minutes, before it dials again.
			s.client.ActiveConnection().ResetConnectBackoff()
		}
	}
	if c.ID != "" && (a.Outcome == queue.Unknown || a.Outcome == queue.Denied) {
		s.names.doubt(c.Session)
	}
	return a
}

var errGone = errors.New("the key to be removed is not there")

// denied is an error that no retry fixes and that does not come from etcd.
type denied struct{ error }

func (d denied) Unwrap() error { return d.error }

// outcomeOf classifies a request that ended with err. Every error that is not known to be harmless is Unknown: a server answers "request
// timed out" to a request that it may apply later.
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
	case errors.Is(err, rpctypes.ErrAuthOldRevision): // permissions have just changed: worth another try
		return queue.Unknown
	case slices.ContainsFunc([]error{rpctypes.ErrNoSpace, rpctypes.ErrCorrupt, rpctypes.ErrTooManyRequests}, func(refusal error) bool {
		return errors.Is(err, refusal)
	}): // until an operator has acted on the alarm, or the server has less to do
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

// answered reports whether etcd has answered, even with a refusal.
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
	return status.Code(err) // Unknown of what is not grpc's, such as the end of a context
}

// call makes a request that belongs to no command.
func (s *store) call(ctx context.Context, request func(context.Context) error) error {
	bounded, cancel := context.WithTimeout(ctx, s.tier.Patience())
	defer cancel()
	err := request(bounded)
	if !answered(err) {
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
		s.tier.Renew() // which finds out whether etcd can be reached
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
		return "", 0, denied{fmt.Errorf("etcd has granted a lease of %v, where %v was asked for", ttl, s.options.TTL)}
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
	id, _ := strconv.ParseInt(session, 16, 64) // is from grant
	return clientv3.LeaseID(id)
}

// attached returns the contenders whose keys are under a lease.
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

// checkVersions warns about servers that cannot keep the promises of this package. checkVersions asks each server once, and ignores those
// that do not answer.
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

// Names are key names of a session that can be used again. etcd keeps the name of a deleted key until it compacts its history, and
// reading a queue goes through all kept names. With fresh names, a lock would therefore become slower with each acquisition.
//
// A name can be used again once the deletion of its key was answered, which happens once for each key. A command that is executed late
// does no harm to the next key of the name: a delete requires the revision at which its key was created, and a change the revision of the
// last write. But a command without an answer may be executed at any time, and the audit recognizes its key by the name. From then on all
// names are fresh.
type names struct {
	mu      sync.Mutex // guards the fields below
	session string
	free    []string // the last one first, so that few are in use
	fresh   bool     // from now on
}

// Name returns a name that no key has.
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

package etcdlock

import (
	"context"
	"path"
	"slices"
	"strings"
	"sync"
	"testing"

	"go.etcd.io/etcd/api/v3/etcdserverpb"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

var errDropped = status.Error(codes.Unavailable, "dropped")

// A calls value records the requests of a process. Rules decide what happens to single requests.
type calls struct {
	mu     sync.Mutex // guards the fields below
	counts map[string]int
	rules  map[string][]rule
	hook   func() (lose bool)
	cut    chan struct{} // closed when the connection is healed; nil while it is not severed

	streams []*stream
	watches []int64                           // the revisions at which watches start; 0 for the present one
	created func(*etcdserverpb.WatchResponse) // called when the next watch has started; nil: no call
}

// A rule is called with each request of a method. It returns true if it has dealt with the request, for which it may have sent it.
type rule func(call) (handled bool, err error)

type call struct {
	context.Context
	reply any
	send  func(context.Context) error
}

// sever blocks all requests and messages in both directions, without an error. When heal is called, the blocked ones fail.
func (c *calls) sever() (heal func()) {
	cut := make(chan struct{})
	c.mu.Lock()
	defer c.mu.Unlock()
	c.cut = cut
	return sync.OnceFunc(func() {
		c.mu.Lock()
		defer c.mu.Unlock()
		c.cut = nil
		close(cut)
	})
}

// through calls f, which sends or receives something. While the connection is severed, it blocks. When heal is called, it fails.
func (c *calls) through(ctx context.Context, f func() error) error {
	if err := c.blocked(ctx); err != nil {
		return err
	}
	if err := f(); err != nil {
		return err
	}
	return c.blocked(ctx)
}

func (c *calls) blocked(ctx context.Context) error {
	c.mu.Lock()
	cut := c.cut
	c.mu.Unlock()
	if cut == nil {
		return nil
	}
	select {
	case <-cut:
		return errDropped
	case <-ctx.Done():
		return status.FromContextError(ctx.Err()).Err()
	}
}

// messages makes hook be called for each message to the process, except messages that keep its session alive.
func (c *calls) messages(hook func() (lose bool)) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.hook = hook
}

// loses reports whether the hook drops a message of a method.
func (c *calls) loses(method string) bool {
	c.mu.Lock()
	hook := c.hook
	c.mu.Unlock()
	return hook != nil && !keeps(method) && hook()
}

func keeps(method string) bool { return strings.HasPrefix(method, "Lease") || method == "Status" }

// nameOf returns the name by which rules and counts refer to a request. This is its method, except for a transaction that only deletes a
// key.
func nameOf(method string, req any) string {
	if txn, ok := req.(*etcdserverpb.TxnRequest); ok && len(txn.Success) == 1 && txn.Success[0].GetRequestDeleteRange() != nil {
		return "DeleteRange"
	}
	return path.Base(method)
}

func (c *calls) unary(
	ctx context.Context, method string, req, reply any, cc *grpc.ClientConn, invoke grpc.UnaryInvoker, opts ...grpc.CallOption,
) error {
	name := nameOf(method, req)
	c.mu.Lock()
	c.counts[name]++
	rules := c.rules[name]
	c.mu.Unlock()
	send := func(ctx context.Context) error {
		return c.through(ctx, func() error { return invoke(ctx, method, req, reply, cc, opts...) })
	}
	for _, r := range rules {
		if handled, err := r(call{ctx, reply, send}); handled {
			return err
		}
	}
	err := send(ctx)
	if c.loses(name) {
		return errDropped
	}
	return err
}

func (c *calls) stream(
	ctx context.Context, desc *grpc.StreamDesc, cc *grpc.ClientConn, method string, open grpc.Streamer, opts ...grpc.CallOption,
) (grpc.ClientStream, error) {
	s := &stream{calls: c, method: path.Base(method)}
	err := c.through(ctx, func() (err error) {
		s.ClientStream, err = open(ctx, desc, cc, method, opts...)
		return err
	})
	if err != nil {
		return nil, err
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.streams = append(c.streams, s)
	return s, nil
}

// silence stops messages on all open streams, without an error.
func (c *calls) silence() {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, s := range c.streams {
		s.silent = true
	}
}

// begun returns the revisions at which watches were requested to begin.
func (c *calls) begun() []int64 {
	c.mu.Lock()
	defer c.mu.Unlock()
	return slices.Clone(c.watches)
}

// A stream is a client stream that can lose messages.
type stream struct {
	grpc.ClientStream
	calls  *calls
	method string
	silent bool // guarded by calls.mu
}

func (s *stream) SendMsg(m any) error {
	if r, ok := m.(*etcdserverpb.WatchRequest); ok && r.GetCreateRequest() != nil {
		s.calls.mu.Lock()
		s.calls.watches = append(s.calls.watches, r.GetCreateRequest().StartRevision)
		s.calls.mu.Unlock()
	}
	return s.calls.through(s.Context(), func() error { return s.ClientStream.SendMsg(m) })
}

func (s *stream) RecvMsg(m any) error {
	if err := s.calls.through(s.Context(), func() error { return s.ClientStream.RecvMsg(m) }); err != nil {
		return err
	}
	s.calls.mu.Lock()
	silent := s.silent
	if r, ok := m.(*etcdserverpb.WatchResponse); ok && r.Created && s.calls.created != nil {
		s.calls.created(r)
		s.calls.created = nil
	}
	s.calls.mu.Unlock()
	if silent {
		<-s.Context().Done()
		return s.Context().Err()
	}
	if s.calls.loses(s.method) {
		return errDropped
	}
	return nil
}

// count returns the number of requests of a method. If method is "", it counts all requests except those that keep the session alive.
func (c *calls) count(method string) (n int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for m, k := range c.counts {
		if m == method || method == "" && !keeps(m) {
			n += k
		}
	}
	return n
}

func (c *calls) on(method string, r rule) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.rules[method] = append(slices.Clip(c.rules[method]), r)
}

// once lets handle decide about the n-th request of a method from now on. The returned channel is closed when that request is made.
func (c *calls) once(method string, n int, handle func(call) error) <-chan struct{} {
	met := make(chan struct{})
	var mu sync.Mutex
	c.on(method, func(one call) (bool, error) {
		mu.Lock()
		n--
		now := n == 0
		mu.Unlock()
		if !now {
			return false, nil
		}
		defer close(met)
		return true, handle(one)
	})
	return met
}

// drop loses the answer to the next request of a method. The request itself is executed.
func (c *calls) drop(method string) <-chan struct{} {
	return c.once(method, 1, func(one call) error {
		if err := one.send(one); err != nil {
			return err
		}
		return errDropped
	})
}

// delay makes the next request of a method fail as if it had got no answer. The request is executed later, when deliver is called.
func (c *calls) delay(t *testing.T, method string) (met <-chan struct{}, deliver func()) {
	return c.resend(t, method, func(call) error { return errDropped })
}

// replay records the next request of a method. The returned function executes that request a second time.
func (c *calls) replay(t *testing.T, method string) (again func()) {
	_, again = c.resend(t, method, func(one call) error { return one.send(one) })
	return again
}

func (c *calls) resend(t *testing.T, method string, first func(call) error) (met <-chan struct{}, again func()) {
	var sent call
	met = c.once(method, 1, func(one call) error { sent = one; return first(one) })
	return met, func() {
		t.Helper()
		<-met
		wantErr(t, sent.send(soon(t)), nil)
	}
}

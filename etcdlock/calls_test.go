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
)

// Calls are the requests of a process. A rule may decide what becomes of one.
type calls struct {
	mu     sync.Mutex // guards the fields below
	counts map[string]int
	rules  []rule
	hook   func() (lose bool)

	streams []*stream
	watches []int64                           // the revisions at which they were to begin, 0 for the present one
	refuse  func(*etcdserverpb.WatchResponse) // nil if none is to be refused
}

// refuseWatch has the next watch refused for a reason, and returns a channel that is closed
// when it is.
func (c *calls) refuseWatch(reason string) <-chan struct{} {
	refused := make(chan struct{})
	c.mu.Lock()
	defer c.mu.Unlock()
	c.refuse = func(created *etcdserverpb.WatchResponse) {
		created.Canceled, created.CancelReason = true, reason
		close(refused)
	}
	return refused
}

// messages has hook see each message to the process, but those that keep its session.
func (c *calls) messages(hook func() (lose bool)) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.hook = hook
}

// loses reports whether the hook loses a message of a method.
func (c *calls) loses(method string) bool {
	c.mu.Lock()
	hook := c.hook
	c.mu.Unlock()
	return hook != nil && !(strings.HasPrefix(method, "Lease") || method == "Status") && hook()
}

// begun returns at which revisions the watches were to begin.
func (c *calls) begun() []int64 {
	c.mu.Lock()
	defer c.mu.Unlock()
	return slices.Clone(c.watches)
}

// A rule sees each request of a method. It returns true for what it has dealt with, by
// calling send or not.
type rule struct {
	method string
	handle func(ctx context.Context, req any, send func(context.Context) error) (handled bool, err error)
}

// nameOf tells the transaction that deletes a key from the others.
func nameOf(method string, req any) string {
	if txn, ok := req.(*etcdserverpb.TxnRequest); ok && len(txn.Success) == 1 && txn.Success[0].GetRequestDeleteRange() != nil {
		return "DeleteRange"
	}
	return path.Base(method)
}

func (c *calls) unary(ctx context.Context, method string, req, reply any, cc *grpc.ClientConn, invoke grpc.UnaryInvoker, opts ...grpc.CallOption) error {
	name := nameOf(method, req)
	c.mu.Lock()
	c.counts[name]++
	rules := c.rules
	c.mu.Unlock()
	send := func(ctx context.Context) error { return invoke(ctx, method, req, reply, cc, opts...) }
	for _, r := range rules {
		if r.method == name {
			if handled, err := r.handle(ctx, req, send); handled {
				return err
			}
		}
	}
	err := send(ctx)
	if c.loses(name) {
		return errDropped
	}
	return err
}

func (c *calls) stream(ctx context.Context, desc *grpc.StreamDesc, cc *grpc.ClientConn, method string, open grpc.Streamer, opts ...grpc.CallOption) (grpc.ClientStream, error) {
	c.mu.Lock()
	c.counts[path.Base(method)]++
	c.mu.Unlock()
	inner, err := open(ctx, desc, cc, method, opts...)
	s := &stream{ClientStream: inner, calls: c, method: path.Base(method)}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.streams = append(c.streams, s)
	return s, err
}

// silence has the streams that are open hear nothing any more, and nobody is told.
func (c *calls) silence() {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, s := range c.streams {
		s.silent = true
	}
}

// A stream is one whose messages can be lost.
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
	return s.ClientStream.SendMsg(m)
}

func (s *stream) RecvMsg(m any) error {
	err := s.ClientStream.RecvMsg(m)
	s.calls.mu.Lock()
	silent := s.silent
	s.calls.mu.Unlock()
	if r, ok := m.(*etcdserverpb.WatchResponse); err == nil && ok && r.Created {
		s.calls.mu.Lock()
		if refuse := s.calls.refuse; refuse != nil {
			refuse(r)
			s.calls.refuse = nil
		}
		s.calls.mu.Unlock()
	}
	if err == nil && silent {
		<-s.Context().Done()
		return s.Context().Err()
	}
	if err == nil && s.calls.loses(s.method) {
		return errDropped
	}
	return err
}

// count returns how many requests there were of a method, or streams; of all but those of
// the keeper if it is "".
func (c *calls) count(method string) (n int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for m, k := range c.counts {
		if m == method || method == "" && m != "LeaseKeepAlive" && m != "Status" {
			n += k
		}
	}
	return n
}

func (c *calls) on(method string, handle func(context.Context, any, func(context.Context) error) (bool, error)) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.rules = append(c.rules, rule{method, handle})
}

// once has handle decide about the n-th request of a method from now, and returns a channel
// that is closed when that has come.
func (c *calls) once(method string, n int, handle func(ctx context.Context, send func(context.Context) error) error) <-chan struct{} {
	met := make(chan struct{})
	var mu sync.Mutex
	c.on(method, func(ctx context.Context, _ any, send func(context.Context) error) (bool, error) {
		mu.Lock()
		n--
		now := n == 0
		mu.Unlock()
		if !now {
			return false, nil
		}
		defer close(met)
		return true, handle(ctx, send)
	})
	return met
}

// dropReply loses the answer to the n-th request of a method from now, which is executed.
func (c *calls) dropReply(method string, n int) <-chan struct{} {
	return c.once(method, n, func(ctx context.Context, send func(context.Context) error) error {
		if err := send(ctx); err != nil {
			return err
		}
		return errDropped
	})
}

// delay holds the n-th request of a method back, which is given up as unanswered, until
// deliver is called.
func (c *calls) delay(t *testing.T, method string, n int) (met <-chan struct{}, deliver func()) {
	var late func(context.Context) error
	met = c.once(method, n, func(_ context.Context, send func(context.Context) error) error {
		late = send
		return errDropped
	})
	return met, func() {
		t.Helper()
		<-met
		if err := late(soon(t)); err != nil {
			t.Fatal(err)
		}
	}
}

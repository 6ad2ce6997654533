package zklock

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
)

// An attempt is one try to acquire a lock. It runs in a goroutine of its own, because
// calls of the client library cannot be cancelled: the caller leaves when its context
// ends, the attempt goes on until its call returns and then undoes what nobody wants
// any more.
type attempt struct {
	lock   *Lock
	client *Client
	ctx    context.Context // ends when nobody wants the lock, or with the client
	once   bool            // do not wait for anything

	reported bool // that there are foreign children

	// parents are the containers that may be there without a child because of the
	// attempt; true: it made them, false: the answer was lost. Nil unless some were missing.
	parents  map[string]bool
	obstacle error // to the parents that are missing, nil if none is known

	trouble atomic.Pointer[error] // what the attempt is waiting to get over, nil if nothing
	verdict atomic.Int32          // pending, then once and for all delivered or abandoned
	done    chan struct{}
	node    *Node // the result, valid when done is closed
	err     error
}

const (
	pending   int32 = iota
	delivered       // the result goes to the caller
	abandoned       // the caller has left
)

// errGone says that a node was lost while it queued: start again at the tail.
var errGone = errors.New("lock node lost while queueing")

// start makes an attempt and waits for its result or the end of ctx.
func (l *Lock) start(ctx context.Context, run func(*attempt) (*Node, error)) (*Node, error) {
	if ctx.Err() != nil {
		return nil, context.Cause(ctx)
	}
	defer l.client.link.Attend()()
	ctx, cancel := l.client.link.Scope(ctx)
	if err := l.client.stragglers.await(ctx, l.path); err != nil {
		cancel()
		return nil, l.client.link.Explain(err)
	}
	a := &attempt{lock: l, client: l.client, ctx: ctx, done: make(chan struct{})}
	if !l.client.link.Spawn(func() { a.deliver(run(a)); cancel() }) {
		cancel()
		return nil, ErrClosed
	}
	<-ctx.Done() // also when the attempt is done
	if a.verdict.CompareAndSwap(pending, abandoned) {
		l.client.stragglers.add(a)
		return nil, a.explain(context.Cause(ctx))
	}
	<-a.done // delivered a moment ago; a grant stands
	return a.node, a.err
}

// explain adds to the end of a wait what it was for, if that was trouble.
func (a *attempt) explain(cause error) error {
	if trouble := a.trouble.Load(); trouble != nil && a.client.Err() == nil {
		return fmt.Errorf("%w: %w", cause, *trouble)
	}
	return a.client.link.Explain(cause)
}

// deliver hands the result over, or undoes it when the caller has left. Both sides
// decide on the verdict, so a node is either delivered or released.
func (a *attempt) deliver(n *Node, err error) {
	a.node, a.err = n, err
	if !a.verdict.CompareAndSwap(pending, delivered) && n != nil {
		n.Release()
	}
	close(a.done)
	a.client.stragglers.remove(a) // after done: add looks at it
}

// stragglers are the attempts whose callers have left. The next attempt on the same
// path waits for them, so that callers who come and go while a call is stuck do not
// pile up stuck calls.
type stragglers struct {
	mu   sync.Mutex // guards the field below
	last map[string]*attempt
}

func (s *stragglers) add(a *attempt) {
	s.mu.Lock()
	defer s.mu.Unlock()
	select {
	case <-a.done:
	default:
		s.last[a.lock.path] = a
	}
}

func (s *stragglers) remove(a *attempt) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.last[a.lock.path] == a {
		delete(s.last, a.lock.path)
	}
}

func (s *stragglers) await(ctx context.Context, path string) error {
	s.mu.Lock()
	a := s.last[path]
	s.mu.Unlock()
	if a == nil {
		return nil
	}
	select {
	case <-a.done:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

package zklock_test

import (
	"context"
	"sync"
	"testing"
	"time"

	"github.com/tierlock/tierlock/internal/zkserver"
	"github.com/tierlock/tierlock/internal/zkserver/zkservertest"
	"github.com/tierlock/tierlock/zklock"
)

// What follows runs on a real server and in real time.

func realServer(t *testing.T) (*zkserver.Server, context.Context) {
	t.Helper()
	t.Parallel()
	s := zkservertest.Start(t, zkserver.Config{TickTime: 200 * time.Millisecond, NoSync: true})
	return s, patient(t)
}

// patient returns a context that ends a test that hangs, on any machine.
func patient(t *testing.T) context.Context {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 5*time.Minute)
	t.Cleanup(cancel)
	return ctx
}

var shared struct {
	once   sync.Once
	server *zkserver.Server
	err    error
}

// sharedServer is for tests that leave it as it is, each with a path of its own.
func sharedServer(t *testing.T) *zkserver.Server {
	t.Helper()
	t.Parallel()
	shared.once.Do(func() {
		shared.server, shared.err = zkserver.Start(context.Background(), zkserver.Config{NoSync: true, ContainerCheck: 100 * time.Millisecond})
	})
	zkservertest.Check(t, shared.err)
	return shared.server
}

// connect starts a process whose lease no busy machine uses up.
func connect(ctx context.Context, t *testing.T, servers string, opts ...zklock.Option) process {
	t.Helper()
	c, err := zklock.Dial(ctx, servers, append([]zklock.Option{zklock.WithSessionTimeout(30 * time.Second)}, opts...)...)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close() })
	return process{Client: c, lock: lockAt(t, c, path)}
}

// enqueue starts to acquire the lock and returns once want contenders are in the queue.
func (p process) enqueue(ctx context.Context, t *testing.T, want int) *request {
	t.Helper()
	r := &request{done: make(chan struct{})}
	go func() {
		defer close(r.done)
		r.node, r.err = p.lock.Acquire(ctx)
	}()
	p.awaitQueue(ctx, t, want)
	return r
}

func (p process) awaitQueue(ctx context.Context, t *testing.T, want int) {
	t.Helper()
	for got := -1; got != want; {
		queue, err := p.lock.Contenders(ctx)
		if err != nil {
			t.Fatalf("waiting for %d contenders, have %d: %v", want, got, err)
		}
		got = len(queue)
	}
}

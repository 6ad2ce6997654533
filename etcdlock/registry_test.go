package etcdlock

import (
	"context"
	"errors"
	"net"
	"strings"
	"testing"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
	"google.golang.org/grpc"

	"github.com/tierlock/tierlock/internal/contention"
	"github.com/tierlock/tierlock/internal/retry"
	"github.com/tierlock/tierlock/internal/second"
	"github.com/tierlock/tierlock/tier"
)

func locks(t *testing.T, opts ...Option) *tier.Registry {
	t.Helper()
	server(t)
	registry, err := New(dial(t, clientv3.Config{Endpoints: []string{shared.server.Addr()}}), append([]Option{WithLeaseTTL(ttl)}, opts...)...)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { registry.Close() })
	return registry
}

func mustHold(t *testing.T, m *tier.Mutex) *tier.Hold {
	t.Helper()
	hold, err := m.Acquire(soon(t))
	if err != nil {
		t.Fatal(err)
	}
	return hold
}

// slow is a client of the server at addr whose connections take that long.
func slow(t *testing.T, addr string, delay time.Duration) *clientv3.Client {
	t.Helper()
	return dial(t, clientv3.Config{Endpoints: []string{addr}, DialOptions: []grpc.DialOption{
		grpc.WithContextDialer(func(ctx context.Context, addr string) (net.Conn, error) {
			if err := retry.Pause(ctx, delay); err != nil {
				return nil, err
			}
			return new(net.Dialer).DialContext(ctx, "tcp", addr)
		}),
	}})
}

func TestTryRightAfterNewWaitsForTheFirstConnection(t *testing.T) {
	t.Parallel()
	try := func(client *clientv3.Client, within time.Duration) (*tier.Hold, error) {
		registry, err := New(client) // for whose lease so short a delay is nothing
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { registry.Close() })
		ctx, cancel := context.WithTimeout(t.Context(), within)
		defer cancel()
		return registry.Mutex(lockPath(t)).TryAcquire(ctx)
	}
	hold, err := try(slow(t, server(t).Addr(), 200*time.Millisecond), 20*time.Second)
	if err != nil {
		t.Fatal(err)
	}
	if err := hold.Release(); err != nil {
		t.Error(err)
	}
	if _, err := try(slow(t, shared.server.Addr(), time.Hour), 50*time.Millisecond); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("a try that is given up: %v", err)
	}
	if _, err := try(dial(t, clientv3.Config{Endpoints: []string{"127.0.0.1:1"}}), time.Minute); err == nil || errors.Is(err, context.DeadlineExceeded) && !strings.Contains(err.Error(), "cannot be reached") {
		t.Errorf("a try where nobody is: %v", err)
	}
}

func TestTxnIsGuardedByTheHold(t *testing.T) {
	t.Parallel()
	hold := mustHold(t, locks(t).Mutex(lockPath(t)))
	data := lockPath(t) + "-data"
	if _, err := Txn(soon(t), hold, clientv3.OpPut(data, "1")); err != nil {
		t.Fatal(err)
	}
	if err := hold.Release(); err != nil {
		t.Fatal(err)
	}
	_, err := Txn(soon(t), hold, clientv3.OpPut(data, "2"))
	wantErr(t, err, tier.ErrReleased)
	if value := valueOf(t, data); value != "1" {
		t.Errorf("wrote %q", value)
	}
}

func TestTxnOfAHoldThatHasHandedOnIsNotSent(t *testing.T) {
	t.Parallel()
	mutex := locks(t).Mutex(lockPath(t))
	first := mustHold(t, mutex)
	next := make(chan *tier.Hold)
	go func() {
		hold, err := mutex.Acquire(soon(t))
		if err != nil {
			t.Error(err)
		}
		next <- hold
	}()
	time.Sleep(20 * time.Millisecond) // likely queued locally; true either way
	if err := first.Release(); err != nil {
		t.Error(err)
	}
	second := <-next
	_, err := Txn(soon(t), first)
	wantErr(t, err, tier.ErrReleased)
	if err := second.Release(); err != nil {
		t.Error(err)
	}
}

func TestTxnRefusesAHoldOfAnotherStore(t *testing.T) {
	t.Parallel()
	registry, err := tier.New(elsewhere{})
	if err != nil {
		t.Fatal(err)
	}
	defer registry.Close()
	hold := mustHold(t, registry.Mutex("/x"))
	if _, err := Txn(soon(t), hold); err == nil || errors.Is(err, tier.ErrLost) {
		t.Errorf("error %v", err)
	}
	hold.Release()
}

// elsewhere is another store, with a lock that nobody else wants.
type elsewhere struct{ second.Tier }

func (elsewhere) Claim(string, second.Options) (second.Claim, error) { return foreign{}, nil }
func (elsewhere) Err() error                                         { return nil }
func (elsewhere) Now() time.Duration                                 { return 0 }
func (elsewhere) Done() <-chan struct{}                              { return nil }
func (elsewhere) Close() error                                       { return nil }

// foreign is its claim and its grant.
type foreign struct {
	second.Claim
	second.Grant
}

func (f foreign) Acquire(context.Context, *second.Wait) (second.Grant, error) { return f, nil }
func (foreign) Context() context.Context                                      { return context.Background() }
func (foreign) Err() error                                                    { return nil }
func (foreign) ErrAt(time.Duration) error                                     { return nil }
func (foreign) Idle() bool                                                    { return true }
func (foreign) Leased() bool                                                  { return true }
func (foreign) Contested() *contention.Signal                                 { return contention.New(func() {}) }
func (foreign) Release() error                                                { return nil }

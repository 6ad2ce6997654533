package zklock_test

import (
	"context"
	"net"
	"testing"
	"time"

	"github.com/tierlock/tierlock/zklock"
	"github.com/tierlock/tierlock/zktest"
)

// The bubble fails if a goroutine is left after any of these.
func TestDialEndsWithItsContext(t *testing.T) {
	mute := func(op zktest.Op) func(*zktest.Server) {
		return func(s *zktest.Server) {
			s.Intercept(func(f *zktest.Frame) zktest.Action {
				if f.Stage == zktest.Request && f.Op == op {
					s.Freeze()
				}
				return zktest.Pass
			})
		}
	}
	for name, c := range map[string]struct {
		trouble func(*zktest.Server)
		left    time.Duration // for how long something is left
	}{
		"no server":                    {down, 0},
		"a mute server":                {func(s *zktest.Server) { s.Freeze() }, 0},
		"a server mute to credentials": {mute(zktest.OpSetAuth), time.Second},
	} {
		for _, patience := range []time.Duration{0, time.Millisecond, 700 * time.Millisecond, 5 * time.Second, 10 * time.Second} {
			t.Run(name+" for "+patience.String(), func(t *testing.T) {
				bubble(t, func(t *testing.T, s *zktest.Server) {
					c.trouble(s)
					ctx, cancel := context.WithCancel(t.Context())
					defer cancel()
					time.AfterFunc(patience, cancel)
					began := time.Now()
					_, err := zklock.Dial(ctx, addr, zklock.WithDialContext(s.DialContext),
						zklock.WithSessionTimeout(time.Minute), zklock.WithAuth("digest", []byte("u:p")))
					wantErr(t, "Dial", err, context.Canceled)
					late := time.Since(began) - patience
					if c.left == 0 && late > 10*time.Millisecond || late > 100*time.Millisecond {
						t.Errorf("returned %v after its context", late)
					}
					time.Sleep(c.left)
					s.Unfreeze()
				})
			})
		}
	}
}

func TestDialEndsWithItsContextWhileNamesAreLookedUp(t *testing.T) {
	lookUps := muteNames(t)
	for name, limit := range map[string]func(context.Context, time.Duration) (context.Context, context.CancelFunc){
		"deadline": context.WithTimeout,
		"cancel": func(ctx context.Context, d time.Duration) (context.Context, context.CancelFunc) {
			ctx, cancel := context.WithCancel(ctx)
			time.AfterFunc(d, cancel)
			return ctx, cancel
		},
	} {
		t.Run(name, func(t *testing.T) {
			ctx, cancel := limit(t.Context(), 50*time.Millisecond)
			defer cancel()
			began := time.Now()
			_, err := zklock.Dial(ctx, "zookeeper.invalid:2181")
			wantErr(t, "Dial", err, context.Cause(ctx))
			if took := time.Since(began); took > 2*time.Second {
				t.Errorf("returned after %v", took)
			}
			select {
			case <-(<-lookUps).Done():
			case <-time.After(time.Second):
				t.Error("a name is still looked up")
			}
		})
	}
}

// muteNames has the name service take questions and not answer them until the test ends. It returns contexts of look-ups.
func muteNames(t *testing.T) (lookUps <-chan context.Context) {
	t.Helper()
	asked := make(chan context.Context, 1)
	ctx, old := t.Context(), net.DefaultResolver
	t.Cleanup(func() { net.DefaultResolver = old })
	net.DefaultResolver = &net.Resolver{
		PreferGo: true,
		Dial: func(lookUp context.Context, _, _ string) (net.Conn, error) {
			select {
			case asked <- lookUp:
			default:
			}
			here, there := net.Pipe()
			context.AfterFunc(ctx, func() { there.Close() })
			return here, nil
		},
	}
	return asked
}

func TestNamesAreLookedUpByTheSystem(t *testing.T) {
	s := zktest.Start(t)
	at, err := s.Listen("127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	_, port, _ := net.SplitHostPort(at.String())
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
	defer cancel()
	c, err := zklock.Dial(ctx, net.JoinHostPort("localhost", port))
	if err != nil {
		t.Fatal(err)
	}
	c.Close()
}

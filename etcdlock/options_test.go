package etcdlock

import (
	"context"
	"strings"
	"sync"
	"testing"
	"time"

	"go.etcd.io/etcd/api/v3/etcdserverpb"
	clientv3 "go.etcd.io/etcd/client/v3"
	"google.golang.org/grpc"

	"github.com/tierlock/tierlock/etcdlock/internal/version"
	"github.com/tierlock/tierlock/internal/second"
	"github.com/tierlock/tierlock/tier"
)

func TestBadOptionsAreNamed(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		option Option
		name   string // what the error has to mention
	}{
		{WithLeaseTTL(0), "lease TTL 0s"},
		{WithLeaseTTL(-time.Second), "lease TTL -1s"},
		{WithLeaseTTL(1500 * time.Millisecond), "lease TTL 1.5s: want whole seconds"},
		{WithLeaseTTL(1 << 62), "want 1s to"},
		{WithLeaseMargin(-time.Second), "lease margin -1s"},
		{WithLeaseMargin(8 * time.Second), "lease margin 8s"}, // of the default of 15 s
		{WithLogger(nil), "nil logger"},
		{WithLabel(strings.Repeat("x", 257)), "label of 257 bytes"},
		{WithLabel("\xff"), "label is not"},
		{WithLabel("a\nb"), "not printed"},
		{tier.WithLinger(-1), "linger -1ns"},
		{nil, "option of type <nil>"},
		{strange{}, "option of type etcdlock.strange"},
	} {
		if _, err := New(new(clientv3.Client), tt.option); err == nil || !strings.Contains(err.Error(), tt.name) {
			t.Errorf("%v, want %q", err, tt.name)
		}
	}
}

// strange is an option of somebody else.
type strange struct{}

func (strange) ForDial() {}

func TestNoClientIsRefused(t *testing.T) {
	t.Parallel()
	if _, err := New(nil); err == nil {
		t.Error("no error")
	}
}

func TestPathsHaveComponents(t *testing.T) {
	t.Parallel()
	p := start(t)
	for path, ok := range map[string]bool{"x": true, "/a/b": true, "a/": false, "a//permits/3": false} {
		if _, err := p.Claim(path, second.Options{}); (err == nil) != ok || (ValidatePath(path) == nil) != ok {
			t.Errorf("%q: %v", path, err)
		}
	}
}

func TestContendersTellOfThemselves(t *testing.T) {
	t.Parallel()
	p := start(t, WithLabel("<the label>"))
	l, err := p.Claim(lockPath(t), second.Options{MayLinger: 3 * time.Second})
	if err != nil {
		t.Fatal(err)
	}
	if queue, err := l.Contenders(soon(t)); err != nil || len(queue) != 0 {
		t.Errorf("%v, %v", queue, err)
	}
	c := mustAcquire(t, lock{l, lockPath(t)})
	w := queueAt(t, start(t).at(t, lockPath(t)))
	queue, err := l.Contenders(soon(t))
	if err != nil || len(queue) != 2 {
		t.Fatalf("%v, %v", queue, err)
	}
	first := queue[0]
	if first.Token != c.Token() || lockPath(t)+"/"+first.ID != keyOf(c.Ref()) || first.Label != "<the label>" || first.Linger != 3*time.Second ||
		first.PID == 0 || time.Since(first.Since) > time.Minute {
		t.Errorf("%+v", first)
	}
	over, cancel := context.WithCancel(t.Context())
	cancel()
	_, err = l.Contenders(over)
	wantErr(t, err, context.Canceled)
	mustRelease(t, c)
	mustRelease(t, w.must(t))
}

// A builder is a strings.Builder for several goroutines.
type builder struct {
	mu sync.Mutex
	b  strings.Builder
}

func (b *builder) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.b.Write(p)
}

func (b *builder) String() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.b.String()
}

func TestRaisedTTLCounts(t *testing.T) {
	t.Parallel()
	var log builder
	p := start(t, WithLeaseTTL(time.Second), logged(&log))
	answer, err := p.client.TimeToLive(soon(t), p.lease())
	if err != nil {
		t.Fatal(err)
	}
	if answer.GrantedTTL == 1 {
		t.Skip("the server grants a second")
	}
	if !strings.Contains(log.String(), "raised") {
		t.Errorf("log: %q", log.String())
	}
	ttl := time.Duration(answer.GrantedTTL) * time.Second
	if patience := p.Patience(); patience != max(ttl/6, 500*time.Millisecond) {
		t.Errorf("requests of %v, which is not of a TTL of %v", patience, ttl)
	}
}

func TestLeaseOfNoTimeIsRefused(t *testing.T) {
	t.Parallel()
	client := dial(t, clientv3.Config{Endpoints: []string{server(t).Addr()}, DialOptions: []grpc.DialOption{
		grpc.WithChainUnaryInterceptor(func(ctx context.Context, method string, req, reply any, cc *grpc.ClientConn, invoke grpc.UnaryInvoker, opts ...grpc.CallOption) error {
			err := invoke(ctx, method, req, reply, cc, opts...)
			if granted, ok := reply.(*etcdserverpb.LeaseGrantResponse); ok {
				granted.TTL = 0
			}
			return err
		}),
	}})
	registry, err := New(client)
	if err != nil {
		t.Fatal(err)
	}
	defer registry.Close()
	if _, err := registry.Mutex(lockPath(t)).Acquire(soon(t)); err == nil || !strings.Contains(err.Error(), "a lease of 0s") {
		t.Errorf("Acquire: %v", err)
	}
}

func TestOldServersAreWarnedAbout(t *testing.T) {
	t.Parallel()
	var log builder
	p := start(t, logged(&log))
	status, err := p.client.Status(soon(t), p.client.Endpoints()[0])
	if err != nil {
		t.Fatal(err)
	}
	eventually(t, "a look at the version", func() bool { return p.calls.count("Status") > 0 || strings.Contains(log.String(), "too old") })
	if old := version.TooOld(status.Version); old {
		eventually(t, "a warning", func() bool { return strings.Contains(log.String(), status.Version) })
	} else if strings.Contains(log.String(), "too old") {
		t.Errorf("about %s: %s", status.Version, log.String())
	}
}

package redislock

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/tierlock/tierlock/internal/logtest"
	"github.com/tierlock/tierlock/internal/queue"
	"github.com/tierlock/tierlock/internal/redisserver"
	"github.com/tierlock/tierlock/internal/redisserver/redisservertest"
	"github.com/tierlock/tierlock/internal/second"
	"github.com/tierlock/tierlock/tier"
)

// strange is an option of somebody else.
type strange struct{}

func (strange) ForDial() {}

func TestBadOptionsAreNamed(t *testing.T) {
	for _, tt := range []struct {
		option Option
		name   string // what the error has to mention
	}{
		{WithLeaseTTL(0), "lease TTL 0s"},
		{WithLeaseTTL(-time.Second), "lease TTL -1s"},
		{WithLeaseTTL(1500 * time.Microsecond), "want 1s to"},
		{WithLeaseTTL(time.Second + time.Microsecond), "want whole milliseconds"},
		{WithLeaseTTL(2 * time.Hour), "want 1s to"},
		{WithLeaseMargin(-time.Second), "lease margin -1s"},
		{WithLeaseMargin(8 * time.Second), "lease margin 8s"}, // of the default of 15 s
		{WithLogger(nil), "nil logger"},
		{WithLabel(strings.Repeat("x", 257)), "label of 257 bytes"},
		{WithLabel("\xff"), "label is not"},
		{WithLabel("a\nb"), "not printed"},
		{tier.WithLinger(-1), "linger -1ns"},
		{nil, "option of type <nil>"},
		{strange{}, "option of type redislock.strange"},
	} {
		if _, err := New(new(redis.Client), tt.option); err == nil || !strings.Contains(err.Error(), tt.name) {
			t.Errorf("%v, want %q", err, tt.name)
		}
	}
}

func TestClientsThatCannotDoAreRefused(t *testing.T) {
	for _, client := range []redis.UniversalClient{nil, (*redis.Client)(nil), (*redis.ClusterClient)(nil), (*redis.Ring)(nil)} {
		if _, err := New(client); err == nil {
			t.Errorf("%T: no error", client)
		}
	}
}

func TestPathsOfLocks(t *testing.T) {
	for path, ok := range map[string]bool{
		"/locks/x": true, "locks:x": true, "x": true, "/": true, "a//b": true, "": false, "l\xff": false, "a\nb": false,
		strings.Repeat("x", 1024): true, strings.Repeat("x", 1025): false, "schlösser/ü 1": true,
		"{a}": false, "{a}:b": true, "b:{a}:c": true, "{}": false, "a{b": false, "a}b": false, "}{a}": false,
		"{a}:tierlock:queue": false, "b:{a}:tierlock:leases": false, "a:tierlock:state": false, "{a}:tierlock:permits": false,
		"{tierlock:primary}:x": false, "a:tierlock:other": true, "tierlock:queue": true, "{a}{b}": false, "{a{b}": false,
	} {
		if err := ValidatePath(path); (err == nil) != ok {
			t.Errorf("%.40q: %v", path, err)
		}
	}
}

// Each lock has a queue of its own.
func TestPathsDoNotShareAQueue(t *testing.T) {
	of := make(map[string]string)
	for _, path := range []string{"a", "{a}", "{a}a", "a{a}", "a:{a}", "{a}:a", "a:a"} {
		if ValidatePath(path) != nil {
			continue
		}
		for _, permits := range []int{0, 1} {
			queue := keysOf(at(queue.Ref{Path: path, Permits: permits}))[1]
			if other, shared := of[queue]; shared {
				t.Errorf("%q and %q share %q", path, other, queue)
			}
			of[queue] = path
		}
	}
}

// The slot of a key is that of what is between the first { and the first } behind it, if that is
// something, and else of the whole key.
func TestKeysOfALockAreInOneSlot(t *testing.T) {
	slotted := func(key string) string {
		if _, rest, found := strings.Cut(key, "{"); found {
			if tag, _, closed := strings.Cut(rest, "}"); closed && tag != "" {
				return tag
			}
		}
		return key
	}
	for _, path := range []string{"x", "/locks/x", "{a}", "b:{a}:c"} {
		for _, key := range append(keysOf(path), keysOf(at(queue.Ref{Path: path, Permits: 1}))...) {
			if slotted(key) != slotted(path) {
				t.Errorf("%s is in another slot than %s", key, path)
			}
		}
	}
}

func TestContendersTellOfThemselves(t *testing.T) {
	t.Parallel()
	p := start(t, WithLabel("<the label>"))
	l := p.with(t, lockPath(t), second.Options{MayLinger: 3 * time.Second})
	if queue, err := l.Contenders(soon(t)); err != nil || len(queue) != 0 {
		t.Errorf("%v, %v", queue, err)
	}
	c := mustAcquire(t, l)
	w := queueAt(t, start(t).at(t, lockPath(t)))
	queue, err := l.Contenders(soon(t))
	if err != nil || len(queue) != 2 {
		t.Fatalf("%v, %v", queue, err)
	}
	first := queue[0]
	if first.Token != c.Token() || first.ID != c.Ref().ID || first.Label != "<the label>" || first.Linger != 3*time.Second ||
		first.PID == 0 || first.Host == "" || time.Since(first.Since) > time.Minute {
		t.Errorf("%+v", first)
	}
	over, cancel := context.WithCancel(t.Context())
	cancel()
	_, err = l.Contenders(over)
	wantErr(t, err, context.Canceled)
	mustRelease(t, c)
	mustRelease(t, w.must(t))
}

// A server is looked at when a session begins.
func TestServerThatMayBreakPromisesIsWarnedAbout(t *testing.T) {
	t.Parallel()
	e := redisservertest.StartEnsemble(t, 2, redisserver.Config{NoSync: true})
	addr := e.Members[0].Addr()
	set := func(name, value string) {
		if _, err := redisserver.Ask(addr, "CONFIG", "SET", name, value); err != nil {
			t.Fatal(err)
		}
	}
	warnings := func() []string {
		log, logger := logtest.New(slog.LevelWarn)
		p := launch(t, []string{addr}, WithLogger(logger))
		p.end()
		return log.Lines(slog.LevelWarn, "redislock: m") // and no quarantine
	}
	if got := warnings(); len(got) != 1 || !strings.Contains(got[0], "min-replicas-to-write") {
		t.Errorf("with a replica, and nothing set: %q", got)
	}
	set("min-replicas-to-write", "1")
	if got := warnings(); len(got) != 0 {
		t.Errorf("with all set: %q", got)
	}
	set("maxmemory-policy", "allkeys-lru")
	if got := warnings(); len(got) != 0 {
		t.Errorf("without a maximum nothing is evicted: %q", got)
	}
	set("maxmemory", "100mb")
	if got := warnings(); len(got) != 1 || !strings.Contains(got[0], "maxmemory-policy") {
		t.Errorf("of a server that evicts: %q", got)
	}
}

func TestQuarantineOfAServerWhoseConfigurationCannotBeRead(t *testing.T) {
	t.Parallel()
	s := redisservertest.Start(t, redisserver.Config{NoSync: true})
	if _, err := redisserver.Ask(s.Addr(), "ACL", "SETUSER", "default", "-config"); err != nil {
		t.Fatal(err)
	}
	p := startAt(t, []string{s.Addr()})
	if got, want := p.quarantine(), ttl+usualLag+rounding; got != want {
		t.Errorf("%v, want %v", got, want)
	}
}

func TestErrorsOfTheServerAreToldApart(t *testing.T) {
	for text, want := range map[string]queue.Outcome{
		"":                                     queue.Done,
		"NOREPLICAS Not enough good replicas":  queue.Failed,
		"LOADING Redis is loading the dataset": queue.Failed,
		"READONLY You can't write":             queue.Failed,
		"OOM command not allowed":              queue.Failed,
		"CLUSTERDOWN The cluster is down":      queue.Failed,
		"ERR Error running script (call to f_1): @user_script:1: -NOREPLICAS Not enough": queue.Failed,
		"NOPERM this user has no permissions":                                            queue.Denied,
		"WRONGTYPE Operation against a key":                                              queue.Denied,
		"ERR unknown command":                                                            queue.Denied,
	} {
		var err error
		if text != "" {
			err = fmt.Errorf("sent: %w", answered(text))
		}
		if got := outcomeOf(err); got != want {
			t.Errorf("%q: %v, want %v", text, got, want)
		}
	}
	for _, err := range []error{context.DeadlineExceeded, errors.New("EOF"), redis.ErrClosed} {
		if got := outcomeOf(err); got != queue.Unknown {
			t.Errorf("%v: %v, want Unknown", err, got)
		}
	}
}

// answered is an error that a server has answered.
type answered string

func (a answered) Error() string { return string(a) }
func (answered) RedisError()     {}

package tier_test

import (
	"net/url"
	"path"
	"strings"
	"testing"

	"github.com/tierlock/tierlock/tier"
	"github.com/tierlock/tierlock/zklock"
	"github.com/tierlock/tierlock/zktest"
	"pgregory.net/rapid"
)

func TestNameIsAReadablePath(t *testing.T) {
	for _, c := range []struct{ dir, name, want string }{
		{"/jobs", "daily", "/jobs/daily"},
		{"/jobs/", "pkg.(*Job).Run-fm", "/jobs/pkg.%28%2AJob%29.Run-fm"},
		{"/jobs", "daily report/größe", "/jobs/daily%20report%2Fgröße"},
		{"/jobs", "日本語: 100%", "/jobs/日本語:%20100%25"},
		{"/jobs", "🔑\x00\xff\ufffd", "/jobs/%F0%9F%94%91%00%FF%EF%BF%BD"},
		{"/jobs", "..", "/jobs/%2E%2E"},
		{"/jobs", "...", "/jobs/%2E%2E%2E"},
		{"/jobs", "zookeeper", "/jobs/zookeeper"},
		{"", "zookeeper", "/%7Aookeeper"},
		{"/", "a", "/a"},
		{"/jobs", "lock-1", "/jobs/lock-1"},
		{"/jobs", "lock-0000000001", "/jobs/lock-000000000%31"},
		{"{jobs}", "a:tierlock:queue", "{jobs}/a:tierlock:queu%65"},
	} {
		if got := tier.Name(c.dir, c.name); got != c.want {
			t.Errorf("Name(%q, %q): got %q, want %q", c.dir, c.name, got, c.want)
		}
	}
}

func TestEveryNameIsALockThatUnescapesToIt(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		name := rapid.OneOf(rapid.StringN(1, 80, 300), rapid.Map(rapid.SliceOfN(rapid.Byte(), 1, 300), func(b []byte) string { return string(b) }),
			rapid.SampledFrom([]string{".", "..", "zookeeper", "lock-0000000001", "lock-000000000%31", ":tierlock:a", "%", "%2F", "/", "/zookeeper", "\u0600\u06dd"})).Draw(t, "name")
		dir := rapid.SampledFrom([]string{"", "/", "/jobs", "/jobs/"}).Draw(t, "dir")
		p := tier.Name(dir, name)
		if err := zklock.ValidatePath(p); err != nil {
			t.Fatalf("Name(%q, %q): %v", dir, name, err)
		}
		if !strings.HasPrefix(p, strings.TrimSuffix(dir, "/")+"/") {
			t.Fatalf("Name(%q, %q): %q is not below", dir, name, p)
		}
		if got, err := url.PathUnescape(path.Base(p)); err != nil || got != name {
			t.Fatalf("Name(%q, %q) unescapes to %q, %v", dir, name, got, err)
		}
	})
}

// Whatever has a lock below that of dir does not queue for it.
func TestNoNameIsAContenderOfTheLockAbove(t *testing.T) {
	var names []string
	for _, mark := range []string{"lock-", "__WRIT__", "__READ__", "__lock__", "__rlock__"} {
		for _, number := range []string{"0000000000", "2147483647", "9999999999", "-000000001", "-2147483648"} {
			names = append(names, mark+number, "_c_00000000-0000-8000-8000-000000000000-"+mark+number, "x"+mark+number)
		}
	}
	zkBubble(t, func(t *testing.T, srv *zktest.Server) {
		locks, other := zkProcess(t, srv), zkProcess(t, srv)
		for _, name := range names {
			below := acquire(t, locks.Mutex(tier.Name("/jobs", name)))
			for _, above := range []*tier.Mutex{other.Mutex("/jobs"), other.RWMutex("/jobs").Reader(), other.RWMutex("/jobs").Writer()} {
				hold, err := above.TryAcquire(soon(t))
				if err != nil {
					t.Fatalf("%s is in the way of the lock above: %v", name, err)
				}
				release(t, hold)
			}
			release(t, below)
			if got, err := url.PathUnescape(path.Base(tier.Name("/jobs", name))); err != nil || got != name {
				t.Errorf("%q unescapes to %q, %v", name, got, err)
			}
		}
	})
}

func TestEmptyOrEndlessNameIsNoLock(t *testing.T) {
	for _, name := range []string{"", strings.Repeat("x", 2000)} {
		if err := zklock.ValidatePath(tier.Name("/jobs", name)); err == nil {
			t.Errorf("a name of %d bytes gives a valid path", len(name))
		}
	}
}

package tier_test

import (
	"net/url"
	"path"
	"strings"
	"testing"

	"github.com/tierlock/tierlock/tier"
	"github.com/tierlock/tierlock/zklock"
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
	} {
		if got := tier.Name(c.dir, c.name); got != c.want {
			t.Errorf("Name(%q, %q): got %q, want %q", c.dir, c.name, got, c.want)
		}
	}
}

func TestEveryNameIsALockThatUnescapesToIt(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		name := rapid.OneOf(rapid.StringN(1, 80, 300), rapid.Map(rapid.SliceOfN(rapid.Byte(), 1, 300), func(b []byte) string { return string(b) }),
			rapid.SampledFrom([]string{".", "..", "zookeeper", "%", "%2F", "/", "/zookeeper", "\u0600\u06dd"})).Draw(t, "name")
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

func TestEmptyOrEndlessNameIsNoLock(t *testing.T) {
	for _, name := range []string{"", strings.Repeat("x", 2000)} {
		if err := zklock.ValidatePath(tier.Name("/jobs", name)); err == nil {
			t.Errorf("a name of %d bytes gives a valid path", len(name))
		}
	}
}

package second

import (
	"fmt"
	"math"
	"testing"
	"time"

	"github.com/tierlock/tierlock/internal/test/need"
)

func TestSettingsThatNoStoreCanDo(t *testing.T) {
	for want, change := range map[string]func(*Settings){
		"lease TTL 0s: want 1s to 1h":            func(s *Settings) { s.TTL = 0 },
		"lease TTL 1h0m0.002s: want 1s":          func(s *Settings) { s.TTL = time.Hour + 2*time.Millisecond },
		"want a multiple of 2ms":                 func(s *Settings) { s.TTL = time.Second + time.Millisecond },
		"lease margin -1s: negative":             func(s *Settings) { s.Margin = -time.Second },
		"lease margin 7.501s: want at most half": func(s *Settings) { s.Margin = 7501 * time.Millisecond },
		"release timeout -1s: negative":          func(s *Settings) { s.Release = -time.Second },
		"nil logger":                             func(s *Settings) { s.Logger = nil },
		"not printable":                          func(s *Settings) { s.Label = "a\nb" },
		"want 1s to":                             func(s *Settings) { s.TTL = math.MaxInt64 },
	} {
		s := Defaults
		change(&s)
		need.WantMention(t, s.Check(time.Hour, 2*time.Millisecond), want)
	}
	for _, ttl := range []time.Duration{time.Second, time.Hour} {
		s := Settings{TTL: ttl, Margin: ttl / 2, Logger: Defaults.Logger}
		need.WantErr(t, fmt.Sprintf("%+v", s), s.Check(time.Hour, 2*time.Millisecond), nil)
	}
}

type (
	own    string
	shared struct{}
	named  string
)

func (n named) Settle(s *Settings) { s.Label = string(n) }

func TestAStoreIsSetWhatIsItsOwn(t *testing.T) {
	var set Settings
	mine, share, err := Split[own, shared](&set, []any{shared{}, own("a"), named("b")})
	need.That(t, fmt.Sprintf("of the store %v, for the registry %v: %v; set: %+v", mine, share, err, set),
		len(mine) == 1 && len(share) == 1 && err == nil && set.Label == "b")
}

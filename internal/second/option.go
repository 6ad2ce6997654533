package second

import (
	"cmp"
	"errors"
	"fmt"
	"log/slog"
	"time"
)

// Settings are the options that all stores have in common.
type Settings struct {
	TTL    time.Duration
	Margin time.Duration // 0: a third of the TTL
	Logger *slog.Logger
	Label  string
	Lazy   bool // the constructor does not wait for the first session

	Release time.Duration // for how long a release waits for the store; 0: a third of the TTL
}

// ReleaseWithin returns for how long a release waits for the store in a session with this TTL.
func (s Settings) ReleaseWithin(ttl time.Duration) time.Duration { return cmp.Or(s.Release, ttl/3) }

// Defaults are the Settings without options.
var Defaults = Settings{TTL: 15 * time.Second, Logger: slog.New(warner(func() slog.Handler { return slog.Default().Handler() }))}

// Split separates the options of a constructor. It returns the options of the store, which have type Own, and the options of package tier
// that the registry needs, which have type Shared. All other options of package tier it applies to s. Split returns an error for an option
// that is wrong or of another package, before the constructor opens anything.
func Split[Own, Shared, Given any](s *Settings, opts []Given) (own []Own, share []Shared, err error) {
	for _, opt := range opts {
		switch o := any(opt).(type) {
		case Own:
			own = append(own, o)
		case interface{ Settle(*Settings) }:
			o.Settle(s)
		case Shared:
			share = append(share, o)
		default:
			return nil, nil, fmt.Errorf("option of type %T; want an option of package tier, or of the package of this store", opt)
		}
		if o, ok := any(opt).(interface{ Wrong() error }); ok && o.Wrong() != nil {
			return nil, nil, o.Wrong()
		}
	}
	return own, share, nil
}

// Check returns an error for settings that no store supports. It also returns an error if the TTL is longer than longest, or is not a
// multiple of unit.
func (s Settings) Check(longest, unit time.Duration) error {
	switch ttl := s.TTL; {
	case ttl < time.Second || ttl > longest:
		return fmt.Errorf("lease TTL %v: want 1s to %v", ttl, longest)
	case ttl%unit != 0:
		return fmt.Errorf("lease TTL %v: want a multiple of %v", ttl, unit)
	}
	return s.CheckRest()
}

// CheckRest returns an error for settings that no store supports. It does not check the TTL.
func (s Settings) CheckRest() error {
	switch {
	case s.Margin < 0:
		return fmt.Errorf("lease margin %v: negative", s.Margin)
	case s.Margin > s.TTL/2:
		return fmt.Errorf("lease margin %v: want at most half of the lease TTL %v", s.Margin, s.TTL)
	case s.Release < 0:
		return fmt.Errorf("release timeout %v: negative", s.Release)
	case s.Logger == nil:
		return errors.New("nil logger")
	}
	return checkLabel(s.Label)
}

package second

import (
	"errors"
	"fmt"
	"log/slog"
	"time"
)

// A RegistryOption is what constructors of registries take, a MutexOption what registries take for one lock. Which of them an
// option is says the interface by which its package returns it.
type (
	RegistryOption interface{ wrong() error }
	MutexOption    interface{ forMutex() }
)

// Option makes a type that embeds it both; there is no other way to be one.
type Option struct{ Wrong error } // by itself, whatever other options say

func (o Option) wrong() error { return o.Wrong }
func (Option) forMutex()      {}

// Split parts what a constructor is given into options of the store, Own, and of package tier, Shared. It refuses all that the
// registry would, so that there is nothing to close yet.
func Split[Own, Shared any, Given RegistryOption](opts []Given) (own []Own, share []Shared, err error) {
	for _, opt := range opts {
		switch o := any(opt).(type) {
		case Own:
			own = append(own, o)
		case Shared:
			share = append(share, o)
		default:
			return nil, nil, fmt.Errorf("option of type %T; want one of the package of this store, or of package tier", opt)
		}
		if err := opt.wrong(); err != nil {
			return nil, nil, err
		}
	}
	return own, share, nil
}

// Settings are what each store can be told.
type Settings struct {
	TTL    time.Duration
	Margin time.Duration // 0: a third of the TTL
	Logger *slog.Logger
	Label  string
	Lazy   bool // nobody waits for the first session
}

// A Setting is an option of a store that sets something in O, which has the Settings.
type Setting[O any] struct {
	Option
	Set func(*O)
}

// Settle sets in o what opts say of a store, and returns those that are for the registry.
func Settle[Shared, O any, Given RegistryOption](o *O, opts []Given) (share []Shared, err error) {
	own, share, err := Split[Setting[O], Shared](opts)
	for _, opt := range own {
		opt.Set(o)
	}
	return share, err
}

// Defaults are the Settings of who sets nothing.
var Defaults = Settings{TTL: 15 * time.Second, Logger: slog.New(warner(func() slog.Handler { return slog.Default().Handler() }))}

// Check reports what no store can do, or not one whose leases last for whole units, and so long at most.
func (s Settings) Check(longest, unit time.Duration) error {
	switch ttl := s.TTL; {
	case ttl < time.Second || ttl > longest:
		return fmt.Errorf("lease TTL %v: want 1s to %v", ttl, longest)
	case ttl%unit != 0:
		return fmt.Errorf("lease TTL %v: want a multiple of %v", ttl, unit)
	}
	return s.CheckRest("lease TTL")
}

// CheckRest reports what no store can do but for the TTL, which has a name.
func (s Settings) CheckRest(ttl string) error {
	switch {
	case s.Margin < 0:
		return fmt.Errorf("lease margin %v: negative", s.Margin)
	case s.Margin > s.TTL/2:
		return fmt.Errorf("lease margin %v: more than half of the %s %v", s.Margin, ttl, s.TTL)
	case s.Logger == nil:
		return errors.New("nil logger")
	}
	return CheckLabel(s.Label)
}

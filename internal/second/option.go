package second

import (
	"fmt"
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

// CheckLease reports a TTL, in whole units, or a margin, that no lease of a store can have.
func CheckLease(ttl, margin, longest, unit time.Duration) error {
	switch {
	case ttl < time.Second || ttl > longest:
		return fmt.Errorf("lease TTL %v: want 1s to %v", ttl, longest)
	case ttl%unit != 0:
		return fmt.Errorf("lease TTL %v: want a multiple of %v", ttl, unit)
	case margin < 0:
		return fmt.Errorf("lease margin %v: negative", margin)
	case margin > ttl/2:
		return fmt.Errorf("lease margin %v: more than half of the lease TTL %v", margin, ttl)
	}
	return nil
}

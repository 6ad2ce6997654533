package etcdlock

import (
	"cmp"
	"math"
	"time"

	"github.com/tierlock/tierlock/internal/queue"
	"github.com/tierlock/tierlock/internal/second"
	"github.com/tierlock/tierlock/tier"
)

type options struct {
	second.Settings
	record func(queue.Record) // for tests
}

// newOptions separates the options of the store from those of the registry.
func newOptions(opts []tier.RegistryOption) (o options, share []tier.Option, err error) {
	o.Settings = second.Defaults
	_, share, err = second.Split[none, tier.Option](&o.Settings, opts)
	return o, share, cmp.Or(err, o.Check(math.MaxInt32*time.Second, time.Second))
}

// none is the type of options that only this store has. No option has this type.
type none struct{ tier.RegistryOption }

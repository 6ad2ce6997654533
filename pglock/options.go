package pglock

import (
	"cmp"
	"time"

	"github.com/tierlock/tierlock/internal/second"
	"github.com/tierlock/tierlock/tier"
)

type option struct {
	tier.RegistryOption
	set func(*options)
}

type options struct {
	second.Settings
	first *firstUse // nil unless WithNewServer
}

const maxTTL = 24 * time.Hour

// WithNewServer says that nobody has had a lock in the database before, so that its server grants locks
// at once though it was started since [Migrate]: for tests, and for the first program of a new server. Where there
// is a record of any process before this one, or the server was promoted since Migrate, there is no session:
// acquisitions fail, and [tier.Registry.Err] says so as well. Later grace periods are as ever.
func WithNewServer() tier.RegistryOption {
	return option{set: func(o *options) { o.first = newFirstUse() }}
}

// newOptions returns the options of the store, and those of the registry.
func newOptions(opts []tier.RegistryOption) (o options, share []tier.Option, err error) {
	o.Settings = second.Defaults
	own, share, err := second.Split[option, tier.Option](&o.Settings, opts)
	for _, opt := range own {
		opt.set(&o)
	}
	return o, share, cmp.Or(err, o.Check(maxTTL, time.Millisecond))
}

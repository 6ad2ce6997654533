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
	first *firstUse // nil without the option WithNewServer
}

const maxTTL = 24 * time.Hour

// WithNewServer declares that no process has used locks in this database before. The server then grants locks at once, without a grace
// period, even if it was started after [Migrate]. Use it in tests, and in the first program on a new server. If the database has a record
// of an earlier process, or the server was promoted since Migrate, acquisitions and [tier.Registry.Err] return an error. The option does
// not affect later grace periods.
func WithNewServer() tier.RegistryOption {
	return option{set: func(o *options) { o.first = newFirstUse() }}
}

// newOptions separates the options of the store from those of the registry.
func newOptions(opts []tier.RegistryOption) (o options, share []tier.Option, err error) {
	o.Settings = second.Defaults
	own, share, err := second.Split[option, tier.Option](&o.Settings, opts)
	for _, opt := range own {
		opt.set(&o)
	}
	return o, share, cmp.Or(err, o.Check(maxTTL, time.Millisecond))
}

package redislock

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
	newServer bool
}

// maxTTL keeps a lease below the time after which unused keys of a lock end.
const maxTTL = time.Hour

// WithNewServer says that nobody has had a lock on the server before, in a cluster on none of its primaries, so that it grants
// locks at once though it was started a moment ago: for tests, and for the first program of a new server. Where there is a
// record of any process before this one, or a server that was promoted or started with data, there is no session: acquisitions
// fail, and [tier.Registry.Err] says so as well. Later grace periods are as ever.
//
// The record goes with the data: after FLUSHALL it is the word of the program alone.
func WithNewServer() tier.RegistryOption {
	return option{set: func(o *options) { o.newServer = true }}
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

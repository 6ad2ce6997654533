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

// maxTTL is the longest TTL. The keys of a lock expire when they are unused for a time that is longer than maxTTL.
const maxTTL = time.Hour

// WithNewServer declares that no process has used locks on this server before, or on any primary of this cluster. The server then grants
// locks at once, without a grace period, even if it was just started. Use the option in tests, and in the first program on a new server. If
// the server has a record of an earlier process, was promoted, or was started with data, acquisitions and [tier.Registry.Err] return an
// error. The option does not affect later grace periods.
//
// Caution: FLUSHALL deletes the record of earlier processes. After FLUSHALL the package cannot check that the server is new.
func WithNewServer() tier.RegistryOption {
	return option{set: func(o *options) { o.newServer = true }}
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

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

// maxTTL is shorter than the time after which unused keys of a lock expire.
const maxTTL = time.Hour

// WithNewServer declares that no process has used locks on this server before, in a cluster on none of its primaries. The server then
// grants locks at once, although it was just started. Use it in tests, and in the first program on a new server. If the server has a
// record of an earlier process, was promoted, or was started with data, acquisitions and [tier.Registry.Err] return an error. Later grace
// periods are not affected.
//
// Caution: FLUSHALL deletes that record, and the declaration is then not checked.
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

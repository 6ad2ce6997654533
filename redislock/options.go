package redislock

import (
	"cmp"
	"log/slog"
	"time"

	"github.com/tierlock/tierlock/internal/second"
	"github.com/tierlock/tierlock/tier"
)

// An Option is one of this package, which says how to use Redis, or a [tier.Option], which says how this process shares its
// locks with others.
type Option interface{ second.RegistryOption }

type option = second.Setting[options]

type options struct {
	second.Settings
	newServer bool
}

// maxTTL keeps a lease below the time after which unused keys of a lock end.
const maxTTL = time.Hour

// WithLeaseTTL sets for how long Redis keeps what a silent process has, in whole milliseconds; default 15 s. It plays the part
// of ZooKeeper's session timeout: for so long the lock of a process that died stays taken, and with the margin it bounds the
// lease of the lock. All processes should have the same, since the longest is what a fail-over costs.
func WithLeaseTTL(d time.Duration) Option {
	return option{Set: func(o *options) { o.TTL = d }}
}

// WithLeaseMargin sets how long before Redis can give it away a lock counts as lost; by default (and with 0) a third of the
// TTL, at most half of it. It is the time that a holder has to stop, less the error of the clocks. What is left of the TTL,
// less a quarter for the renewals, is how long an outage may last without a loss.
func WithLeaseMargin(d time.Duration) Option {
	return option{Set: func(o *options) { o.Margin = d }}
}

// WithLogger sets where to report what no return value can carry; by default what is of WARN or above goes to [slog.Default], as it
// is at that time, and the rest nowhere.
//
//   - WARN: a lock is lost, once per hold, with path, token and cause, unless the registry was closed; Redis does not answer
//     for longer than a third of the TTL, once per outage, or has not answered yet, after 3 s and then ever more rarely; it has
//     not answered for a whole TTL; it grants nothing, until when and why, once per quarantine; the server is set up so that it
//     may break promises: see the package documentation; it refuses what every lock needs, with what to allow, or
//     [WithNewServer], once for each reason; it refuses to tell this process of its turns, to remove a contender, which stays
//     until its lease ends, or to let readers in beside a writer that reads; and what package tier warns of:
//     see [tier.Mutex.Acquire] and [tier.WithLeakDetection].
//   - INFO: Redis answers again, and after how long (not each time if that keeps changing); the configuration of the server
//     cannot be read.
//
// The logger may block, panic or call back: it runs in a goroutine of its own, and no lock and no connection waits for it. While it
// blocks, 256 lines wait; later ones are dropped, and the next line that it takes says how many. Close waits for the logger for a
// second at most.
func WithLogger(logger *slog.Logger) Option {
	return option{Set: func(o *options) { o.Logger = logger }}
}

// WithLabel sets a name for this process that Contenders shows beside its host and pid; at most 256 bytes of UTF-8, and only
// characters that are printed.
func WithLabel(label string) Option {
	return option{Set: func(o *options) { o.Label = label }}
}

// WithNewServer says that nobody has had a lock on the server before, in a cluster on none of its primaries, so that it grants
// locks at once though it was started a moment ago: for tests, and for the first program of a new server. Where there is a
// record of any process before this one, or a server that was promoted or started with data, there is no session: acquisitions
// fail, and [tier.Registry.Err] says so as well. Later quarantines are as ever.
//
// The record goes with the data: after FLUSHALL it is the word of the program alone.
func WithNewServer() Option {
	return option{Set: func(o *options) { o.newServer = true }}
}

// WithLazyStart has New return at once, for programs that must start without Redis. The first session is then begun in the
// background, and asked for again until there is one. Meanwhile acquisitions wait, a try waits until it is known whether Redis can be
// reached, and [tier.Registry.Err] says why there is no session.
func WithLazyStart() Option {
	return option{Set: func(o *options) { o.Lazy = true }}
}

// newOptions returns what opts say of the store, and those that are for the registry.
func newOptions(opts []Option) (o options, share []tier.Option, err error) {
	o.Settings = second.Defaults
	share, err = second.Settle[tier.Option](&o, opts)
	return o, share, cmp.Or(err, o.Check(maxTTL, time.Millisecond))
}

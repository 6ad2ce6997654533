package pglock

import (
	"cmp"
	"log/slog"
	"time"

	"github.com/tierlock/tierlock/internal/second"
	"github.com/tierlock/tierlock/tier"
)

// An Option is one of this package, which says how to use PostgreSQL, or a [tier.Option], which
// says how this process shares its locks with others.
type Option interface{ second.RegistryOption }

type option = second.Setting[options]

type options struct {
	second.Settings
	first *firstUse // nil unless WithNewServer
}

const maxTTL = 24 * time.Hour

// WithLeaseTTL sets for how long the server keeps what a process has that it does not hear from;
// default 15 s. For so long the lock of a process that died stays taken, and with the margin it
// bounds the lease of the lock. At least a second, in whole milliseconds.
func WithLeaseTTL(d time.Duration) Option {
	return option{Set: func(o *options) { o.TTL = d }}
}

// WithLeaseMargin sets how long before the server can give it away a lock counts as lost; by
// default (and with 0) a third of the TTL, at most half of it. It is the time that a holder has
// to stop, less the error of the clocks. What is left of the TTL, less a quarter for the
// renewals, is how long an outage may last without a loss.
func WithLeaseMargin(d time.Duration) Option {
	return option{Set: func(o *options) { o.Margin = d }}
}

// WithLogger sets where to report what no return value can carry; by default what is of WARN or above
// goes to [slog.Default], as it is at that time, and the rest nowhere.
//
//   - WARN: a lock is lost, once per hold, with path, token and cause, unless the registry was
//     closed; the server does not answer for longer than a third of the TTL, once per outage, or
//     has not answered yet, after 3 s and then ever more rarely; the session has expired; the server
//     grants nothing, until when and why, once per quarantine; no lock can be acquired as things stand,
//     once per reason; a writer cannot let readers in; a contender cannot be removed from its queue;
//     and what package tier warns of: see [tier.Mutex.Acquire] and [tier.WithLeakDetection].
//   - INFO: the server answers again, and after how long (not each time if that keeps changing);
//     there is a new session.
//
// The logger may block, panic or call back: it runs in a goroutine of its own, and no lock and no connection waits for it. While it
// blocks, 256 lines wait; later ones are dropped, and the next line that it takes says how many. Close waits for the logger for a
// second at most.
func WithLogger(logger *slog.Logger) Option {
	return option{Set: func(o *options) { o.Logger = logger }}
}

// WithLabel sets a name for this process that Contenders shows beside its host and pid; at
// most 256 bytes of UTF-8, and only characters that are printed.
func WithLabel(label string) Option {
	return option{Set: func(o *options) { o.Label = label }}
}

// WithNewServer says that nobody has had a lock in the database before, so that its server grants locks
// at once though it was started since [Migrate]: for tests, and for the first program of a new server. Where there
// is a record of any process before this one, or the server was promoted since Migrate, there is no session:
// acquisitions fail, and [tier.Registry.Err] says so as well. Later quarantines are as ever.
func WithNewServer() Option {
	return option{Set: func(o *options) { o.first = newFirstUse() }}
}

// WithLazyStart has New and NewAdvisory return at once, for programs that must start without their server. The first session is then begun
// in the background, and asked for again until there is one. Meanwhile acquisitions wait, a try waits until it is known whether the
// server can be reached, and [tier.Registry.Err] says why there is no session.
func WithLazyStart() Option {
	return option{Set: func(o *options) { o.Lazy = true }}
}

// newOptions returns what opts say of the store, and those that are for the registry.
func newOptions(opts []Option) (o options, share []tier.Option, err error) {
	o.Settings = second.Defaults
	share, err = second.Settle[tier.Option](&o, opts)
	return o, share, cmp.Or(err, o.Check(maxTTL, time.Millisecond))
}

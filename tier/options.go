package tier

import (
	"fmt"
	"time"
)

// An Option changes how a [Registry] shares its locks with other processes.
type Option func(*options)

type options struct {
	fixed   bool          // the hand-off budget is set
	handOff time.Duration // if it is
	linger  time.Duration
}

// WithHandOff fixes for how long, while another process waits for a lock, its node may
// be handed on from goroutine to goroutine of this process before the other one gets
// its turn. While no other process waits there is no limit. Zero is strict: the node
// goes at every release.
//
// By default it is twenty times what this process has measured that giving the node up
// takes, at least 2 ms and at most 100 ms: nobody works while the lock changes process,
// which is then about a twentieth of the time.
func WithHandOff(budget time.Duration) Option {
	return func(o *options) { o.fixed, o.handOff = true, budget }
}

// WithLinger keeps the node for up to d after the last release when nobody waits, so
// that the next acquisition of this process needs no round trip; default 0. Another
// process that queues ends it at once.
func WithLinger(d time.Duration) Option {
	return func(o *options) { o.linger = d }
}

func newOptions(opts []Option) (options, error) {
	var o options
	for _, opt := range opts {
		opt(&o)
	}
	if o.handOff < 0 {
		return o, fmt.Errorf("tier: hand-off budget %v: negative", o.handOff)
	}
	if o.linger < 0 {
		return o, fmt.Errorf("tier: linger %v: negative", o.linger)
	}
	return o, nil
}

// Package load lets worker processes hammer a lock and measures it. It has both ends of
// the pipe between a worker and the coordinator.
package load

import (
	"time"

	"github.com/tierlock/tierlock/stress/internal/evidence"
	"github.com/tierlock/tierlock/stress/internal/report"
	"github.com/tierlock/tierlock/stress/internal/store"
)

// Config is the shape of a run.
type Config struct {
	Store      *store.Store
	Servers    []string // empty: private servers
	Private    bool     // the servers were started for this run
	Prefix     string   // of all paths, "" or "/..."
	Lock       string   // a kind that the store has
	Procs      int
	Goroutines int // per process
	Paths      int
	Section    time.Duration
	Think      time.Duration
	RTT        time.Duration // from workers to servers, on top of what it is
	Duration   time.Duration
	Seed       uint64
	Baseline   bool

	Chaos          bool
	Ensemble       int            // number of private servers
	HandOff        *time.Duration // nil: the lock's default; under chaos each worker has its own
	Linger         *time.Duration // likewise
	SessionTimeout time.Duration  // zero: the lock's default
}

func (c *Config) judging() evidence.Judging {
	if c.Chaos {
		return evidence.ByKernel // somebody may be killed inside
	}
	return evidence.ByCount
}

func (c *Config) options() store.Options {
	return store.Options{Servers: c.Servers, Goroutines: c.Goroutines, SessionTimeout: c.SessionTimeout, HandOff: c.HandOff, Linger: c.Linger}
}

// Shape is what private servers for the run are to be like.
func (c *Config) Shape() store.Shape { return store.Shape{Members: c.Ensemble, Hasty: c.Chaos} }

// Place is where the locks of the run are to be.
func (c *Config) Place() store.Place {
	return store.Place{Servers: c.Servers, Prefix: c.Prefix, Lock: c.Lock, Paths: c.Paths}
}

// Result says what the work is. What it showed is not known yet.
func (c *Config) Result() *report.Result {
	return &report.Result{
		Store: c.Store.Name, Lock: c.Lock, Procs: c.Procs, Goroutines: c.Goroutines, Paths: c.Paths,
		Section: c.Section.Nanoseconds(), Think: c.Think.Nanoseconds(), RTT: c.RTT.Nanoseconds(), Seed: c.Seed,
	}
}

// Environment is where the run is measured.
func (c *Config) Environment() *report.Environment {
	e := report.Machine()
	e.Servers, e.Sync = len(c.Servers), "forced"
	version := &e.ZooKeeper
	if c.Store == store.Etcd {
		version = &e.Etcd
	}
	*version = c.Store.Version(c.Servers)
	switch {
	case !c.Private:
		e.Sync = "as the server is configured"
	case c.Chaos:
		e.Sync = "off"
	}
	return e
}

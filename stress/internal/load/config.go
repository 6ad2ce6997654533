// Package load runs worker processes that contend for a lock, and measures the lock. It contains both sides of the communication between
// the coordinator and a worker.
package load

import (
	"time"

	"github.com/tierlock/tierlock/stress/internal/evidence"
	"github.com/tierlock/tierlock/stress/internal/report"
	"github.com/tierlock/tierlock/stress/internal/rule"
	"github.com/tierlock/tierlock/stress/internal/store"
)

// Config describes a run.
type Config struct {
	Store      *store.Store
	Servers    []string // empty: private servers
	Private    bool     // the servers were started for this run
	Release    string   // the version of the servers, "" if they do not report it
	Prefix     string   // the beginning of all paths: "" or "/..."
	Lock       string   // the name of a kind of lock in Store
	Reads      float64  // for a reader/writer lock: the share of the acquisitions that read
	Permits    int      // for a semaphore: the number of its permits
	Weight     int      // for a semaphore: the most permits that an acquisition takes
	Procs      int
	Goroutines int // per process
	Paths      int
	Zipf       float64 // the exponent with which paths are chosen; 0: all paths equally often
	Section    time.Duration
	Think      time.Duration
	RTT        time.Duration // the round trip from workers to servers, in addition to the network's own
	Duration   time.Duration
	Seed       uint64
	Baseline   string // a lock that is measured first, for comparison; "" for none

	Chaos          bool
	Trace          string         // the directory in which the trace is kept; "" for none
	Ensemble       int            // number of private servers
	HandOff        *time.Duration // nil: the lock's default; zero: strict order; under chaos each worker draws its own
	Linger         *time.Duration // nil: the lock's default; under chaos each worker draws its own
	SessionTimeout time.Duration  // zero: the lock's default
}

// Traced reports whether requests and answers between the workers and the store are recorded and checked.
func (c *Config) Traced() bool { return c.Chaos && c.Kind().Tier }

func (c *Config) judging() evidence.Judging {
	if c.Chaos {
		return evidence.ByKernel // a worker may be killed in its section
	}
	return evidence.ByCount
}

// Rule returns the rule that says which sections may be in progress at the same time.
func (c *Config) Rule() rule.Rule {
	switch c.Kind().Sort {
	case store.ReadersWriter:
		return rule.ReadersWriter(c.Reads)
	case store.Semaphore:
		return rule.Permits(c.Permits, c.Weight)
	}
	return rule.Mutex()
}

// Kind returns the kind of the lock.
func (c *Config) Kind() store.Kind { return c.Store.Locks[c.Lock] }

func (c *Config) options() store.Options {
	return store.Options{
		Servers: c.Servers, Goroutines: c.Goroutines, Permits: c.Permits,
		SessionTimeout: c.SessionTimeout, HandOff: c.HandOff, Linger: c.Linger,
	}
}

// Shape returns what private servers for the run have to be like.
func (c *Config) Shape() store.Shape { return store.Shape{Members: c.Ensemble, Hasty: c.Chaos} }

// Use lets the run use the given private servers.
func (c *Config) Use(cluster *store.Cluster) {
	c.Servers, c.Private = cluster.Addrs(), true
	c.Release, _ = cluster.Members[0].Version()
}

// Place returns the location of the locks.
func (c *Config) Place() store.Place {
	return store.Place{Servers: c.Servers, Prefix: c.Prefix, Lock: c.Lock, Paths: c.Paths}
}

// Result returns a result that describes the workload. Its measurements are still empty.
func (c *Config) Result() *report.Result {
	r := &report.Result{
		Store: c.Store.Name, Lock: c.Lock, Procs: c.Procs, Goroutines: c.Goroutines, Paths: c.Paths,
		Zipf: c.Zipf, Section: c.Section.Nanoseconds(), Think: c.Think.Nanoseconds(), RTT: c.RTT.Nanoseconds(), Seed: c.Seed,
	}
	switch c.Kind().Sort {
	case store.ReadersWriter:
		r.Reads = &c.Reads
	case store.Semaphore:
		r.Permits, r.Weight = c.Permits, c.Weight
	}
	return r
}

// Environment describes the machine and the servers of the measurement.
func (c *Config) Environment() *report.Environment {
	e := report.Machine()
	e.Servers = len(c.Servers)
	version := map[string]*string{
		"ZooKeeper": &e.ZooKeeper, "etcd": &e.Etcd, "PostgreSQL": &e.PostgreSQL, "MariaDB": &e.MariaDB, "Redis": &e.Redis,
	}[c.Store.Title]
	*version = c.Release
	switch {
	case !c.Private:
		e.Sync = "as the server is configured"
	case c.Store.Title == "Redis":
		e.Sync = "each second"
	case c.Chaos:
		e.Sync = "off"
	default:
		e.Sync = "forced"
	}
	return e
}

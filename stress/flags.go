package main

import (
	"cmp"
	"errors"
	"flag"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/tierlock/tierlock/stress/internal/bench"
	"github.com/tierlock/tierlock/stress/internal/load"
	"github.com/tierlock/tierlock/stress/internal/store"
)

// command is the parsed command line.
type command struct {
	load.Config
	JSON  bool
	HTML  string // file for the report; "" for no report
	Bench string // directory for the results of a benchmark; "" for a run instead of a benchmark
}

// drawing returns the name of the file for the picture of an illegal history, next to the report. It returns "" if there is no report.
func (c *command) drawing() string {
	if c.HTML == "" {
		return ""
	}
	return strings.TrimSuffix(c.HTML, filepath.Ext(c.HTML)) + "-history.html"
}

// parseFlags reads the command line. If it returns an error, it has already printed the error and the usage to stderr.
func parseFlags(args []string, stderr io.Writer) (command, error) {
	c := command{Config: load.Config{Store: store.ZooKeeper}}
	var servers, format, baseline string
	flags := flag.NewFlagSet("stress", flag.ContinueOnError)
	flags.SetOutput(stderr)
	flags.Func("store", "`store` of the locks: "+strings.Join(store.Names(), "|")+" (default zookeeper)", c.setStore)
	flags.StringVar(&servers, "zk", "", "`host:port[,...][/chroot]` of ZooKeeper (default: a private server)")
	flags.StringVar(&c.Lock, "lock", "mutex", "`kind` of lock to hammer: mutex; rw, a reader/writer lock; semaphore; on ZooKeeper zklock, "+
		"the lower half of mutex; or what others would take, one per goroutine: on ZooKeeper zk, go-zookeeper's; on etcd etcd, the client "+
		"library's concurrency.Mutex; on PostgreSQL advisory, pg_advisory_lock, and version, a loop over a version column; on MySQL "+
		"get_lock, GET_LOCK, and table, a lock table that polls; on Redis rueidislock, redsync, and redislock, bsm's; zk-local, etcd-local, "+
		"advisory-local, get_lock-local and rueidislock-local have a local mutex in front")
	flags.Float64Var(&c.Reads, "reads", 0.9, "`share` of the turns that read, for -lock rw")
	flags.IntVar(&c.Permits, "permits", 10, "permits of -lock semaphore")
	flags.IntVar(&c.Weight, "weight", 1, "permits that a turn of -lock semaphore takes at most; from one to so many at random")
	flags.IntVar(&c.Procs, "procs", 4, "worker processes")
	flags.IntVar(&c.Goroutines, "goroutines", 50, "goroutines per process")
	flags.IntVar(&c.Paths, "paths", 1, "lock paths; each turn takes one at random")
	flags.Float64Var(&c.Zipf, "zipf", 0, "take the nth path as often as 1 in n to the power of this `exponent` above 1, not all alike")
	flags.DurationVar(&c.Section, "cs", 0, "time to stay in the critical section")
	flags.DurationVar(&c.Think, "think", 0, "mean pause of a goroutine between two turns")
	flags.DurationVar(&c.RTT, "rtt", 0, "round trip from workers to servers: half of it each way, on top of the network's own")
	flags.DurationVar(&c.Duration, "duration", 10*time.Second, "length of the run")
	flags.Uint64Var(&c.Seed, "seed", 0, "of all random choices (default: random, printed)")
	flags.BoolFunc("baseline", "run what others would take first, on the same server in the same shape, and compare: zk, etcd, "+
		"advisory or rueidislock, for rw the mutex; -baseline=`lock` names another one", setBaseline(&baseline))
	flags.StringVar(&format, "o", "text", "text|json: form of the result")
	flags.StringVar(&c.HTML, "html", "", "`file` to write a report with charts to")
	flags.StringVar(&c.Bench, "bench", "", "measure all that tierlock is held against, with -duration 1.4s each by default, and write it "+
		"to the documents in `dir`")
	flags.BoolVar(&c.Chaos, "chaos", false, "kill and stop workers and servers, and cut connections, for the whole duration")
	flags.StringVar(&c.Trace, "trace", "", "for -chaos: keep the messages between the workers and the store in `dir`")
	flags.IntVar(&c.Ensemble, "ensemble", 1, "private servers")
	flags.Func("handoff", "hand-off budget, a `duration` above 0 (default: the library's; under -chaos a mix)", func(s string) error {
		err := optional(&c.HandOff)(s)
		if err == nil && *c.HandOff == 0 {
			err = errors.New("not a duration above 0; for strict order use -strict")
		}
		return err
	})
	flags.BoolFunc("strict", "strict order: without hand-offs within a process", func(string) error {
		c.HandOff = new(time.Duration)
		return nil
	})
	flags.Func("linger", "`duration` to keep an idle lock (default: the library's; under -chaos a mix)", optional(&c.Linger))
	if err := flags.Parse(args); err != nil {
		return c, err
	}
	c.JSON = format == "json"
	set := map[string]bool{}
	flags.Visit(func(f *flag.Flag) { set[f.Name] = true })
	if c.Chaos {
		c.shapeForChaos(set)
	}
	if c.Bench != "" && !set["duration"] {
		c.Duration = 1400 * time.Millisecond
	}
	c.chooseBaseline(baseline)
	err := errors.Join(c.setServers(servers), c.check(), c.checkSort(set), c.checkChaos(), c.checkBench(set), checkFormat(format),
		checkArgs(flags.Args()))
	if err != nil {
		fmt.Fprintln(stderr, err)
		flags.Usage()
	}
	if c.Seed == 0 {
		c.Seed = rand.Uint64()
	}
	return c, err
}

func (c *command) setStore(name string) (err error) {
	c.Store, err = store.Named(name)
	return err
}

// setBaseline returns the function that parses the flag -baseline. Without a value, the flag means the first baseline of the store; its
// text is then "true".
func setBaseline(name *string) func(string) error {
	return func(s string) error {
		if s == "false" {
			s = ""
		}
		*name = s
		return nil
	}
}

func (c *command) chooseBaseline(name string) {
	c.Baseline = name
	if all := c.Store.BaselinesOf(c.Lock); name == "true" && len(all) > 0 {
		c.Baseline = all[0]
	}
}

func (c *command) setServers(s string) (err error) {
	if s == "" {
		return nil
	}
	if c.Store != store.ZooKeeper {
		return fmt.Errorf("-zk is for ZooKeeper, not for -store %s", c.Store.Name)
	}
	if c.Servers, c.Prefix, err = store.ParseZooKeeper(s); err != nil {
		return fmt.Errorf("-zk %q: %w", s, err)
	}
	return nil
}

func (c *command) check() error {
	if _, ok := c.Store.Locks[c.Lock]; !ok {
		return fmt.Errorf("-lock %q: no such lock on %s, which has %s", c.Lock, c.Store.Title,
			strings.Join(slices.Sorted(maps.Keys(c.Store.Locks)), ", "))
	}
	if min(c.Procs, c.Goroutines, c.Paths) < 1 {
		return errors.New("-procs, -goroutines and -paths must be at least 1")
	}
	if c.Zipf != 0 && !(c.Zipf > 1) { // also refuses NaN
		return errors.New("-zipf must be above 1")
	}
	if c.Duration <= 0 || min(c.Section, c.Think, c.RTT) < 0 {
		return errors.New("-duration must be positive, -cs, -think and -rtt not negative")
	}
	return nil
}

// checkSort refuses flags that are only for another sort of lock.
func (c *command) checkSort(set map[string]bool) error {
	sort := c.Kind().Sort
	switch {
	case set["reads"] && sort != store.ReadersWriter:
		return errors.New("-reads is for -lock rw")
	case (set["permits"] || set["weight"]) && sort != store.Semaphore:
		return errors.New("-permits and -weight are for -lock semaphore")
	case !(c.Reads >= 0 && c.Reads <= 1): // also refuses NaN
		return errors.New("-reads must be from 0 to 1")
	case c.Weight < 1 || c.Weight > c.Permits:
		return errors.New("-weight must be at least 1, and -permits no less")
	case c.Baseline != "" && !slices.Contains(c.Store.BaselinesOf(c.Lock), c.Baseline):
		return fmt.Errorf("-baseline: -lock %s on %s can be compared with %s", c.Lock, c.Store.Title,
			cmp.Or(strings.Join(c.Store.BaselinesOf(c.Lock), ", "), "none"))
	}
	return nil
}

// shapeForChaos replaces the defaults of some flags. With -chaos each acquisition is recorded and checked, so a run has fewer of them.
func (c *command) shapeForChaos(set map[string]bool) {
	if !set["goroutines"] {
		c.Goroutines = 8
	}
	if !set["paths"] {
		c.Paths = 4
	}
	if !set["cs"] {
		c.Section = 20 * time.Millisecond // long enough that most pauses hit a holder
	}
	if !set["think"] {
		c.Think = 5 * time.Millisecond
	}
	if !set["permits"] {
		c.Permits = max(3, c.Weight) // fewer permits than the goroutines want
	}
}

func (c *command) checkChaos() error {
	switch {
	case c.Ensemble != 1 && c.Ensemble < 3:
		return errors.New("-ensemble must be 1 or at least 3")
	case c.Ensemble > 1 && c.Servers != nil:
		return errors.New("-ensemble is for private servers, without -zk")
	case !c.Kind().Tier && (c.HandOff != nil || c.Linger != nil):
		return errors.New("-handoff, -strict and -linger are for -lock mutex, rw and semaphore")
	case c.Chaos && c.Servers != nil:
		return errors.New("-chaos kills servers, and so works on private ones only, without -zk")
	case c.Chaos && (c.Baseline != "" || slices.Contains(c.Store.Baselines, c.Lock)):
		return errors.New("-chaos is not for what others would take, and has no baseline")
	}
	if c.Trace == "" {
		return nil
	}
	if !c.Chaos {
		return errors.New("-trace is for -chaos")
	}
	if !c.Kind().Tier {
		return errors.New("-trace is for -lock mutex, rw and semaphore")
	}
	entries, err := os.ReadDir(c.Trace)
	if len(entries) > 0 {
		return fmt.Errorf("-trace %s: not empty", c.Trace)
	}
	if errors.Is(err, fs.ErrNotExist) {
		return os.Mkdir(c.Trace, 0o777)
	}
	return err
}

// checkBench refuses flags for settings that a benchmark decides itself.
func (c *command) checkBench(set map[string]bool) error {
	if c.Bench == "" {
		return nil
	}
	if !bench.Has(c.Store.Name) {
		return fmt.Errorf("-bench -store %s: it is measured with -store postgres", c.Store.Name)
	}
	for name := range set {
		if !slices.Contains([]string{"bench", "duration", "seed", "store"}, name) {
			return fmt.Errorf("-bench takes -store, -duration and -seed, not -%s", name)
		}
	}
	return nil
}

// optional returns a function that parses the duration of a flag. If the flag is not given, the duration stays nil.
func optional(d **time.Duration) func(string) error {
	return func(s string) error {
		v, err := time.ParseDuration(s)
		if err != nil || v < 0 {
			return errors.New("not a duration of zero or more")
		}
		*d = &v
		return nil
	}
}

func checkFormat(format string) error {
	if format != "text" && format != "json" {
		return fmt.Errorf("-o %q: neither text nor json", format)
	}
	return nil
}

func checkArgs(rest []string) error {
	if len(rest) > 0 {
		return fmt.Errorf("unexpected argument %q", rest[0])
	}
	return nil
}

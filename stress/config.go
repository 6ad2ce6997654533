package main

import (
	"errors"
	"flag"
	"fmt"
	"io"
	"maps"
	"math/rand/v2"
	"slices"
	"strings"
	"time"

	"github.com/tierlock/tierlock/zklock"
)

// Config is the shape of a run.
type Config struct {
	Servers    []string // empty: a private server
	Chroot     string   // prefix of all paths, "" or "/..."
	Lock       string
	Procs      int
	Goroutines int // per process
	Paths      int
	Section    time.Duration
	Think      time.Duration
	Duration   time.Duration
	Seed       uint64
	Baseline   bool
	JSON       bool
}

// parseFlags reads the command line. Its error is already on stderr, with the usage.
func parseFlags(args []string, stderr io.Writer) (Config, error) {
	var c Config
	var servers, format string
	kinds := strings.Join(slices.Sorted(maps.Keys(dialers)), "|")
	flags := flag.NewFlagSet("stress", flag.ContinueOnError)
	flags.SetOutput(stderr)
	flags.StringVar(&servers, "zk", "", "`host:port[,...][/chroot]` of ZooKeeper (default: a private server)")
	flags.StringVar(&c.Lock, "lock", "tier", kinds+": the lock to hammer; zk is go-zookeeper's, one per goroutine")
	flags.IntVar(&c.Procs, "procs", 4, "worker processes")
	flags.IntVar(&c.Goroutines, "goroutines", 50, "goroutines per process")
	flags.IntVar(&c.Paths, "paths", 1, "lock paths; each turn takes one at random")
	flags.DurationVar(&c.Section, "cs", 0, "time to stay in the critical section")
	flags.DurationVar(&c.Think, "think", 0, "mean pause of a goroutine between two turns")
	flags.DurationVar(&c.Duration, "duration", 10*time.Second, "length of the run")
	flags.Uint64Var(&c.Seed, "seed", 0, "of all random choices (default: random, printed)")
	flags.BoolVar(&c.Baseline, "baseline", false, "run -lock zk first, on the same server in the same shape, and compare")
	flags.StringVar(&format, "o", "text", "text|json: form of the result")
	if err := flags.Parse(args); err != nil {
		return c, err
	}
	c.JSON = format == "json"
	err := errors.Join(c.setServers(servers), c.check(), checkFormat(format), checkArgs(flags.Args()))
	if err != nil {
		fmt.Fprintln(stderr, err)
		flags.Usage()
	}
	if c.Seed == 0 {
		c.Seed = rand.Uint64()
	}
	return c, err
}

func (c *Config) setServers(s string) error {
	if s == "" {
		return nil
	}
	hosts, chroot, found := strings.Cut(s, "/")
	if found {
		c.Chroot = "/" + chroot
	}
	c.Servers = strings.Split(hosts, ",")
	if slices.Contains(c.Servers, "") {
		return fmt.Errorf("-zk %q: an empty host", s)
	}
	if err := zklock.ValidatePath(c.Chroot + "/lock"); err != nil {
		return fmt.Errorf("-zk %q: %w", s, err)
	}
	return nil
}

func (c *Config) check() error {
	if _, ok := dialers[c.Lock]; !ok {
		return fmt.Errorf("-lock %q: no such lock", c.Lock)
	}
	if min(c.Procs, c.Goroutines, c.Paths) < 1 {
		return errors.New("-procs, -goroutines and -paths must be at least 1")
	}
	if c.Duration <= 0 || min(c.Section, c.Think) < 0 {
		return errors.New("-duration must be positive, -cs and -think not negative")
	}
	return nil
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

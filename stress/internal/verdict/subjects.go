package verdict

import (
	"context"
	"fmt"
	"os/exec"
	"runtime/debug"
	"slices"
	"strings"

	"github.com/tierlock/tierlock/internal/test/child"
	"github.com/tierlock/tierlock/stress/internal/store"
	"github.com/tierlock/tierlock/stress/internal/twin"
)

// Subject is a lock that is tested and judged.
type Subject struct {
	Name    string // the name for the flag -only, without a space
	Title   string
	Module  string // the module whose version the document names; "" for tierlock
	Store   *store.Store
	Dial    store.Dial // dials the lock in a process of this program
	Program []string   // the command line of its processes if they are another program, which reports its version itself
	Lease   string     // the option by which the lease is set to 5 s, and the default of that option
	Tells   string     // how an owner notices a loss, according to the documentation
	Limits  []Limit
}

// Limit is a limitation quoted from the subject's own documentation.
type Limit struct {
	Text, Source string
}

// subjects are all locks that are tested. These are only the peers until [Main] adds the others.
var subjects = peers

var peers = []Subject{
	{
		Name: "zk.Lock", Title: "`zk.Lock`", Module: "github.com/go-zookeeper/zk", Store: store.ZooKeeper, Dial: dialZK,
		Lease: "the session timeout given to `zk.Connect`; no default",
		Tells: "not at all; in the test, the program counts `StateDisconnected` and `StateExpired` as a loss",
		Limits: []Limit{{
			Text:   "Is there a way to tell if a previously acquired lock has been lost?",
			Source: "[an issue, open since 2014](https://github.com/samuel/go-zookeeper/issues/20); the documentation does not mention it",
		}, {
			Text:   "It will wait to return until the lock is acquired or an error occurs.",
			Source: "[Lock.LockWithData](https://pkg.go.dev/github.com/go-zookeeper/zk#Lock.LockWithData), which leaves its node after an error",
		}},
	},
	{
		Name: "etcd-mutex", Title: "etcd `concurrency.Mutex`", Module: "go.etcd.io/etcd/client/v3", Store: store.Etcd, Dial: dialEtcd,
		Lease: "`concurrency.WithTTL(5)`; 60 s", Tells: "`Session.Done`",
		Limits: []Limit{{
			Text:   "Generally speaking, a lease-based lock service cannot provide mutual exclusion to processes.",
			Source: "[contrib/lock](https://github.com/etcd-io/etcd/tree/main/contrib/lock)",
		}},
	},
	{
		Name: "redsync", Title: "redsync", Module: "github.com/go-redsync/redsync/v4", Store: store.Redis, Dial: dialRedsync,
		Lease: "`redsync.WithExpiry(5 s)`; 8 s", Tells: "`Until`; the program calls `Extend` each third of the lease",
		Limits: []Limit{{
			Text:   "This code implements an algorithm which is currently a proposal, it was not formally analyzed.",
			Source: "[README](https://github.com/go-redsync/redsync#disclaimer)",
		}},
	},
	{
		Name: "bsm-redislock", Title: "bsm/redislock", Module: "github.com/bsm/redislock", Store: store.Redis, Dial: dialBsm,
		Lease: "the `ttl` of `Obtain`; no default", Tells: "an error of `Refresh`, which the program calls each third of the lease",
		Limits: []Limit{{
			Text:   "TTL returns the remaining time-to-live. Returns 0 if the lock has expired.",
			Source: "[package redislock](https://pkg.go.dev/github.com/bsm/redislock#Lock.TTL); the program would have to call TTL before each use",
		}},
	},
	{
		Name: "rueidislock", Title: "rueidislock", Module: "github.com/redis/rueidis", Store: store.Redis, Dial: dialRueidislock,
		Lease: "`KeyValidity`; 5 s. `TryNextAfter` is 0.5 s instead of 20 ms, which " +
			"[its maintainer](https://github.com/redis/rueidis/issues/630) suggests for slow answers",
		Tells: "the context that `WithContext` returns",
		Limits: []Limit{{
			Text:   "The returned `ctx` will be canceled automatically and immediately once the `KeyMajority` is not held anymore",
			Source: "[README](https://github.com/redis/rueidis/tree/main/rueidislock)",
		}},
	},
	{
		Name: "pg_advisory_lock", Title: "`pg_advisory_lock` on pgx", Module: "github.com/jackc/pgx/v5",
		Store: store.PostgresAdvisory, Dial: dialAdvisory,
		Lease: "`idle_session_timeout`; by default no session ends",
		Tells: "an error of `Ping`, which the program calls each third of the lease",
		Limits: []Limit{{
			Text:   "Once acquired at session level, an advisory lock is held until explicitly released or the session ends.",
			Source: "[PostgreSQL, Explicit Locking](https://www.postgresql.org/docs/current/explicit-locking.html#ADVISORY-LOCKS)",
		}},
	},
}

var own = []Subject{
	ours(store.ZooKeeper, "ZooKeeper"),
	ours(store.Etcd, "etcd"),
	ours(store.Redis, "Redis"),
	ours(store.Postgres, "PostgreSQL"),
	ours(store.PostgresAdvisory, "PostgreSQL, advisory"),
}

// ourName is the prefix of the names of tierlock's own subjects.
const ourName = "tierlock-"

func ours(s *store.Store, where string) Subject {
	o := Subject{
		Name: ourName + s.Name, Title: "tierlock on " + where, Store: s, Dial: s.Locks["mutex"].Dial,
		Lease: "`tier.WithLeaseTTL(5 s)`; 15 s", Tells: "`Hold.Err`",
	}
	if s.Brittle {
		o.Limits = []Limit{{
			Text:   "Exclusion needs the TCP connection to be alive at both ends or at none.",
			Source: "[pglock.NewAdvisory](https://pkg.go.dev/github.com/tierlock/tierlock/pglock#NewAdvisory)",
		}}
	}
	return o
}

// command returns a command that starts a process with the lock.
func (s Subject) command() (*exec.Cmd, error) {
	if s.Program == nil {
		return twin.Command(context.Background(), "party")
	}
	cmd := exec.Command(s.Program[0], s.Program[1:]...)
	return cmd, child.Apart(cmd)
}

// version returns the version of the library that is linked into this program.
func (s Subject) version() string {
	info, _ := debug.ReadBuildInfo()
	for _, m := range info.Deps {
		if m.Path == s.Module {
			return m.Version
		}
	}
	return "this one"
}

func subjectNamed(name string) (Subject, error) {
	i := slices.IndexFunc(subjects, func(s Subject) bool { return s.Name == name })
	if i < 0 {
		return Subject{}, fmt.Errorf("no subject %q", name)
	}
	return subjects[i], nil
}

// cell is the combination of a subject and a fault.
type cell struct {
	subject Subject
	fault   fault
}

// The function choose returns the cells that only lists. An entry is subject/fault, or a subject, or /fault. If only is empty, choose
// returns all cells.
func choose(only string) (cells []cell) {
	for _, f := range faults {
		for _, s := range subjects {
			wanted := func(name string) bool { return name == s.Name+"/"+f.name || name == s.Name || name == "/"+f.name }
			if only == "" || slices.ContainsFunc(strings.Split(only, ","), wanted) {
				cells = append(cells, cell{s, f})
			}
		}
	}
	return cells
}

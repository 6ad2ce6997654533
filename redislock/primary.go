package redislock

import (
	"cmp"
	"context"
	"errors"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/tierlock/tierlock/internal/queue"
)

// A server gets another replication id whenever it begins to be the primary, by its start or by being promoted. The script
// grants nothing for who has not met the primary with its id, which is to ask the record of that for how long it grants
// nothing.

// recordKeys are those of what is known of a primary. They are in one slot, whichever server has that: a primary has no slot
// that it keeps.
func recordKeys(id string) []string {
	return []string{records + id, records + "longest", records + "first"}
}

const records = "{tierlock:primary}:"

// met are the primaries that this process has met, each with for how long it still grants nothing. One whose grace period seems
// to be over is met once more, since that may have become longer.
func (s *store) met() string {
	var met []string
	s.primaries.Range(func(id, until any) bool {
		if left := until.(time.Duration) - s.tier.Now(); until == time.Duration(0) {
			met = append(met, id.(string)+"=0")
		} else if left > 0 {
			met = append(met, id.(string)+"="+micros(left))
		}
		return true
	})
	return strings.Join(met, " ")
}

// introduced reports whether an answer is that of a primary which the caller has not met: its id, its age, and whether it may
// have the data of another one.
func introduced(words []string) bool { return len(words) == 4 && words[0] == "stranger" }

func inherits(words []string) bool { return words[3] == "1" }

// meet asks the record of a primary, which has introduced itself, for how long it grants nothing.
func (s *store) meet(ctx context.Context, words []string) error {
	id, age, mark := words[1], words[2], ""
	if strings.Contains(s.met(), id) { // by now, or for another lock
		return nil
	}
	if s.declares() && !inherits(words) {
		mark = s.name
	}
	sent := time.Now()
	answer, err := recordScript.run(ctx, s.client, recordKeys(id), micros(s.gracePeriod()), age, mark).Int64()
	if err != nil {
		return err
	} else if answer < 0 {
		return errUsed
	}
	until := time.Duration(0)
	if left := time.Duration(answer) * time.Microsecond; left > 0 {
		until = s.tier.Now() + left
		reason := "the server started less than a lease ago"
		if inherits(words) {
			reason = "the server was started or promoted, and first used less than a lease ago"
		}
		s.tier.InGracePeriod(left, sent, reason)
	}
	s.forgetSome(ctx)
	s.primaries.Store(id, until)
	return nil
}

// fewest is how many primaries of a cluster are kept in any case.
const fewest = 16

// forgetSome makes room for another primary: all that were met are sent with each command, and each fail-over adds one. A primary that is
// still there introduces itself again, which costs a request. So of a cluster twice as many are kept as it has.
func (s *store) forgetSome(ctx context.Context) {
	cluster, ok := s.client.(*redis.ClusterClient)
	if !ok { // there is no other one
		s.primaries.Clear()
		return
	}
	var met, there atomic.Int64
	s.primaries.Range(func(any, any) bool { return met.Add(1) > 0 })
	if met.Load() < fewest {
		return
	}
	err := cluster.ForEachMaster(ctx, func(context.Context, *redis.Client) error {
		there.Add(1)
		return nil
	})
	if err == nil && met.Load() >= 2*there.Load() {
		s.primaries.Clear()
	}
}

// errNoIdentity says that a primary cannot be told from the one before, so that nothing would be known of grants that were lost.
var errNoIdentity = errors.New("the server, or a proxy before it, hides master_replid and master_replid2 of INFO replication, which tell " +
	"a primary that took over; redislock cannot work there")

func identified(err error) error {
	if redis.HasErrorPrefix(err, "NOREPLID") {
		return errNoIdentity
	}
	return err
}

// errUsed says that the server knows better than the program.
var errUsed = errors.New("WithNewServer: the server has a record of locks before this process, or was promoted, or has the " +
	"data of another; leave the option out")

// declares reports whether it is still to be noted that nobody has used the primaries before, by the word of the program. That
// is said once: of one that comes later it is not true.
func (s *store) declares() bool { return s.options.newServer && !s.declared.Load() }

// gracePeriod is how long nobody gets a lock from a primary that is a new one: until what the old one has granted is over, or
// been renewed for the last time, if that one does not know that it was replaced, and ceases to take writes once it misses its
// replicas.
func (s *store) gracePeriod() time.Duration {
	return s.options.TTL + time.Duration(s.lag.Load())
}

// examine asks what a server is like, of a cluster each primary, and meets it. It warns of what breaks promises.
func (s *store) examine(ctx context.Context) error {
	var mu sync.Mutex // guards the variables below
	longest, strangers := time.Duration(0), [][]string(nil)
	look := func(ctx context.Context, one *redis.Client) error {
		lag, err := s.examineOne(ctx, one)
		if err != nil {
			return err
		}
		words, err := lockScript.run(ctx, one, nil, "meet", 0, 0, "", "", 0).StringSlice()
		err = identified(err)
		if err == nil && s.declares() && inherits(words) {
			err = errUsed
		}
		mu.Lock()
		defer mu.Unlock()
		longest, strangers = max(longest, lag), append(strangers, words)
		return err
	}
	var err error
	switch client := s.client.(type) {
	case *redis.ClusterClient:
		err = client.ForEachMaster(ctx, look)
	case *redis.Client:
		err = look(ctx, client)
	}
	if err != nil {
		return err
	}
	s.lag.Store(int64(longest))
	for _, words := range strangers {
		if err := s.meet(ctx, words); err != nil {
			return err
		}
	}
	s.declared.Store(true)
	return nil
}

const (
	usualLag = 10 * time.Second // of Redis, as min-replicas-max-lag, unless told otherwise
	rounding = 2 * time.Second  // for which it may take writes after the lag: it counts whole seconds, and does so once a second
)

// examineOne checks that the server allows what is needed, since a script that fails halfway would not say which of its commands
// it was. It returns for how long a primary that was replaced may still take writes, as far as that is bounded.
func (s *store) examineOne(ctx context.Context, one *redis.Client) (lag time.Duration, err error) {
	missing, err := aclScript.run(ctx, one, nil, s.channel(), records).StringSlice()
	if err != nil {
		return 0, err
	} else if len(missing) > 0 {
		return 0, allow(errDenied, missing...)
	}
	config, err := one.ConfigGet(ctx, "m*").Result()
	switch outcomeOf(err) {
	case queue.Done:
	case queue.Denied: // as with most of those who run Redis for others
		s.tier.Logger().Info("redislock: cannot read the server's configuration; assuming a replication lag of ten seconds", "err", err)
		return usualLag + rounding, nil
	default:
		return 0, err
	}
	if policy := config["maxmemory-policy"]; config["maxmemory"] != "0" && policy != "noeviction" {
		s.tier.Logger().Warn("redislock: maxmemory-policy is not noeviction; the server may evict locks", "policy", policy)
	}
	if cmp.Or(config["min-replicas-to-write"], config["min-slaves-to-write"], "0") == "0" {
		if replicas := one.InfoMap(ctx, "replication").Item("Replication", "connected_slaves"); replicas != "0" && replicas != "" {
			s.tier.Logger().Warn("redislock: min-replicas-to-write is 0; after a failover the former primary can still grant locks",
				"replicas", replicas)
		}
		return 0, nil
	}
	seconds, _ := strconv.Atoi(cmp.Or(config["min-replicas-max-lag"], config["min-slaves-max-lag"]))
	return time.Duration(seconds)*time.Second + rounding, nil
}

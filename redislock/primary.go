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

// A server gets another replication id whenever it becomes the primary, at its start or by promotion. The script grants nothing to a
// process that does not know the primary's id. The process then reads the record of that primary, which says how long the grace period
// lasts.

// recordKeys returns the keys of the record of a primary. The keys of a record share one slot, which any server may have, because a
// primary does not keep its slots.
func recordKeys(id string) []string {
	return []string{records + id, records + "longest", records + "first"}
}

const records = "{tierlock:primary}:"

// met lists the primaries that this process knows, each with the remaining time of its grace period. A primary whose grace period seems
// to be over is looked up once more, since the period may have become longer.
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

// introduced reports whether an answer comes from a primary that this process does not know. Such an answer has its id, its age, and
// whether it may have the data of an earlier primary.
func introduced(words []string) bool { return len(words) == 4 && words[0] == "stranger" }

func inherits(words []string) bool { return words[3] == "1" }

// meet reads the record of such a primary, which says how long its grace period lasts.
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

// fewest is the number of primaries up to which none is forgotten.
const fewest = 16

// forgetSome forgets known primaries, because each command sends the list of them and each fail-over makes it longer. A primary that
// still exists then introduces itself again, which costs one request. For a cluster, the store therefore remembers up to twice as many
// primaries as the cluster has.
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

// errNoIdentity says that a primary cannot be distinguished from the one before it, so lost grants would go unnoticed.
var errNoIdentity = errors.New("the server, or a proxy before it, hides master_replid and master_replid2 of INFO replication, which tell " +
	"a primary that took over; redislock cannot work there")

func identified(err error) error {
	if redis.HasErrorPrefix(err, "NOREPLID") {
		return errNoIdentity
	}
	return err
}

// errUsed says that WithNewServer was given for a server that has been used before.
var errUsed = errors.New("WithNewServer: the server has a record of locks before this process, or was promoted, or has the " +
	"data of another; leave the option out")

// declares reports whether the record still has to be written that the primaries are new, as WithNewServer says. The record is written
// once, because it would not be true for a later primary.
func (s *store) declares() bool { return s.options.newServer && !s.declared.Load() }

// gracePeriod returns how long a new primary grants nothing: until the grants of the old one have ended, including those that it renewed
// before it stopped accepting writes for lack of replicas.
func (s *store) gracePeriod() time.Duration {
	return s.options.TTL + time.Duration(s.lag.Load())
}

// examine checks each server of the client (in a cluster each primary), and reads its record. examine logs a warning about settings that
// break promises.
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

// examineOne checks that the user has all permissions, because the error of a script that fails halfway would not say which of its
// commands was refused. examineOne returns for how long a replaced primary may still accept writes, if that time is bounded.
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
		if strings.HasPrefix(policy, "allkeys") { // else only keys that expire
			s.evicting.Store(policy)
		}
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

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

// A server gets a new replication ID whenever it becomes the primary, at its start or by a promotion. With each command, a process sends
// the IDs of the primaries that it knows. If the ID of the primary is not among them, the script grants nothing. The process then reads the
// record of that primary, which tells how long its grace period lasts.

// recordKeys returns the keys of the record of a primary. All records are in one slot of the cluster. Any server may have that slot, since
// slots can move between primaries.
func recordKeys(id string) []string {
	return []string{records + id, records + "longest", records + "first"}
}

const records = "{tierlock:primary}:"

// met returns the list of the primaries that this process knows, as text. For each primary it has the remaining time of the grace period.
// Once a grace period seems to be over, its primary is not in the list. The process then reads the record again, because the grace period
// may have become longer.
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

// introduced reports whether an answer comes from a primary that this process does not know. Such an answer has the ID and the age of the
// primary. It also tells whether the primary may have the data of an earlier primary.
func introduced(words []string) bool { return len(words) == 4 && words[0] == "stranger" }

func inherits(words []string) bool { return words[3] == "1" }

// meet reads the record of a primary that this process does not know. The record tells how long the grace period of that primary lasts.
// words is the answer of the primary; see introduced.
func (s *store) meet(ctx context.Context, words []string) error {
	id, age, mark := words[1], words[2], ""
	if strings.Contains(s.met(), id) { // another command has read the record meanwhile
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
		reason := "the server was started less than a lease ago"
		if inherits(words) {
			reason = "the server was started or promoted, and processes have used it for less than a lease"
		}
		s.tier.InGracePeriod(left, sent, reason)
	}
	s.forgetSome(ctx)
	s.primaries.Store(id, until)
	return nil
}

// While a process knows fewer primaries than fewest, it forgets none.
const fewest = 16

// forgetSome forgets the known primaries if there are too many. Each command sends the list of them, and each failover makes the list
// longer. Forgetting a primary that still exists costs one request, because its record is then read again. For a cluster, the store
// therefore remembers up to twice as many primaries as the cluster has.
func (s *store) forgetSome(ctx context.Context) {
	cluster, ok := s.client.(*redis.ClusterClient)
	if !ok { // without a cluster, there is only one primary at a time
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

// errNoIdentity means that the server does not show its replication ID. A new primary could then not be told apart from the one before, and
// the loss of grants would go unnoticed.
var errNoIdentity = errors.New("the server, or a proxy before it, hides master_replid and master_replid2 of INFO replication; " +
	"redislock needs them to recognize a new primary, and refuses this server")

func identified(err error) error {
	if redis.HasErrorPrefix(err, "NOREPLID") {
		return errNoIdentity
	}
	return err
}

// errUsed means that the program uses WithNewServer, although locks on the server have been used before.
var errUsed = errors.New("WithNewServer: a process has used locks on this server before, or the server was promoted, or it has the " +
	"data of another server; leave the option out")

// declares reports whether this process still has to record that the primaries are new, as the program has declared with WithNewServer.
// That is recorded only once, because it would not be true for a later primary.
func (s *store) declares() bool { return s.options.newServer && !s.declared.Load() }

// gracePeriod returns how long a new primary grants nothing. By then, all grants of the old primary have ended. The old primary may have
// renewed grants until it stopped accepting writes, because it had too few replicas.
func (s *store) gracePeriod() time.Duration {
	return s.options.TTL + time.Duration(s.lag.Load())
}

// examine checks the server of the client, or each primary of a cluster, and reads its record. It logs a warning about settings of a server
// that break promises of this package.
func (s *store) examine(ctx context.Context) error {
	var mu sync.Mutex // guards the variables below
	longest, strangers, evicting := time.Duration(0), [][]string(nil), ""
	look := func(ctx context.Context, one *redis.Client) error {
		lag, err := s.examineOne(ctx, one)
		if err != nil {
			return err
		}
		policy, err := s.evicts(ctx, one)
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
		longest, strangers, evicting = max(longest, lag), append(strangers, words), worse(evicting, policy)
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
	s.evicting.Store(evicting)
	for _, words := range strangers {
		if err := s.meet(ctx, words); err != nil {
			return err
		}
	}
	s.declared.Store(true)
	return nil
}

const (
	usualLag = 10 * time.Second // the default of min-replicas-max-lag in Redis
	rounding = 2 * time.Second  // writes may be accepted this long after the lag, because Redis checks the lag once a second, in whole seconds
)

// examineOne checks one server. It checks that the user has all permissions, because the error of a script does not tell which of its
// commands was refused. It returns how long a former primary may still accept writes after a failover, and 0 if that time has no limit.
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
	case queue.Denied: // most providers of managed Redis do not allow CONFIG
		s.tier.Logger().Info("redislock: cannot read the server's configuration; assuming a replication lag of ten seconds", "err", err)
		return usualLag + rounding, nil
	default:
		return 0, err
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

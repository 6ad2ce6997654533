package redislock

import (
	"errors"
	"fmt"
	"log/slog"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/tierlock/tierlock/internal/queue"
	"github.com/tierlock/tierlock/internal/second"
	"github.com/tierlock/tierlock/internal/test/child/childtest"
	"github.com/tierlock/tierlock/internal/test/logtest"
	"github.com/tierlock/tierlock/internal/test/need"
	"github.com/tierlock/tierlock/internal/test/redisserver"
	"github.com/tierlock/tierlock/tier"
)

// The script computes the length of the grace period. It depends on the record of the primary, on the primary's age, and on the longest TTL
// of any process so far.
func TestRecordOfAPrimary(t *testing.T) {
	t.Parallel()
	ago := func(d time.Duration) string { return strconv.FormatInt(time.Now().Add(-d).UnixMicro(), 10) }
	const minute, month = time.Minute, 30 * 24 * time.Hour
	type row struct {
		since, longest, mark string // the record; "" if there is none
		mine, age            time.Duration
		says                 string // the mark of a process that declares the primary to be new; "" for none
		want                 time.Duration
	}
	need.Each(t, map[string]row{
		"a new one":                          {mine: minute, want: minute},
		"one of some age":                    {mine: minute, age: 10 * time.Second, want: 50 * time.Second},
		"one that is up for long":            {mine: minute, age: time.Hour},
		"known for long":                     {since: "0", mine: minute},
		"others have longer leases":          {longest: micros(time.Hour), mine: minute, want: time.Hour},
		"others had shorter leases":          {longest: micros(time.Second), mine: minute, want: minute},
		"known since a clock that was ahead": {since: ago(-time.Hour), mine: minute, want: minute},
		"said to be new":                     {mine: minute, says: "me"},
		"said so twice":                      {since: "0", longest: micros(minute), mark: "me", mine: minute, says: "me"},
		"said of another one":                {longest: micros(minute), mark: "me", mine: minute, says: "me"},
		"another one was first":              {longest: micros(minute), mark: "you", mine: minute, says: "me", want: -1},
		"a process was there before":         {longest: micros(minute), mine: minute, says: "me", want: -1},
		"a process has met it":               {since: "0", mine: minute, says: "me", want: -1},
	}, func(t *testing.T, c row) {
		keys := []string{"record:" + t.Name(), "longest:" + t.Name(), "first:" + t.Name()}
		for i, value := range []string{c.since, c.longest, c.mark} {
			if value != "" {
				outside(t).Set(soon(t), keys[i], value, 0)
			}
		}
		got, err := recordScript.run(soon(t), outside(t), keys, micros(c.mine), micros(c.age), c.says).Int64()
		if refused := c.want < 0; err != nil || refused != (got == -1) || !refused && got != c.want.Microseconds() {
			t.Errorf("%d, %v, want %v", got, err, c.want)
		}
		if got < 0 {
			return
		}
		before, _ := strconv.ParseInt(c.longest, 10, 64)
		need.Equal(t, "the longest", need.Get(outside(t).Get(soon(t), keys[1]).Int64())(t), max(before, c.mine.Microseconds()))
		need.Between(t, "the record expires in", outside(t).PTTL(soon(t), keys[0]).Val(), month-time.Hour, month)
	})
}

// A server reports its age in whole seconds, and therefore may be a second older. Its clock may be set back to before its start. If a
// primary was promoted, or has the data of another server, its age does not matter.
func TestPrimaryIntroducesItself(t *testing.T) {
	t.Parallel()
	const id, none, other = "aaaaaaaa", "0000000", "000b000"
	for _, c := range []struct {
		second, uptime string
		want           []string
	}{
		{none, "61", []string{"stranger", id, "60000000", "0"}},
		{none, "-3600", []string{"stranger", id, "0", "0"}},
		{other, "61", []string{"stranger", id, "0", "1"}},
	} {
		source := informed(fmt.Sprintf(`master_replid:%s\r\nmaster_replid2:%s\r\n`, id, c.second),
			fmt.Sprintf(`uptime_in_seconds:%s\r\n`, c.uptime))
		words, err := outside(t).Eval(soon(t), source, nil, "meet", 0, 0, "", "", 0).StringSlice()
		need.WantErr(t, "meet", err, nil)
		need.List(t, fmt.Sprintf("the introduction of %+v", c), words, c.want...)
	}
}

// informed returns the text of lockScript, changed so that INFO seems to return the given texts.
func informed(replication, server string) (source string) {
	source = lockScript.text
	for command, answer := range map[string]string{"replication": replication, "server": server} {
		source = strings.Replace(source, "redis.call('INFO', '"+command+"')", "('"+answer+"')", 1)
	}
	return source
}

// A proxy may hide the replication ID. Then a process cannot distinguish two primaries, and its session is refused with that reason. A
// server that hides its age counts as just started.
func TestServerThatHidesWhatItIsIsRefused(t *testing.T) {
	t.Parallel()
	for _, hidden := range []string{"", `master_replid:aaaaaaaa\r\n`, `master_replid2:0000000\r\n`} {
		err := outside(t).Eval(soon(t), informed(hidden, ""), nil, "meet", 0, 0, "", "", 0).Err()
		need.Must(t, fmt.Sprintf("meet: %v", err), redis.HasErrorPrefix(err, "NOREPLID"))
		need.Equal(t, "the outcome of a session", outcomeOf(identified(err)), queue.Denied)
	}
	ageless := informed(`master_replid:aaaaaaaa\r\nmaster_replid2:0000000\r\n`, "")
	words, err := outside(t).Eval(soon(t), ageless, nil, "meet", 0, 0, "", "", 0).StringSlice()
	need.WantErr(t, "meet", err, nil)
	need.List(t, "the introduction of one without an age", words, "stranger", "aaaaaaaa", "0", "0")
}

// If another command of the process has already read the record of a new primary, meet does not read it again.
func TestPrimaryThatIsKnownByNowIsNotAsked(t *testing.T) {
	t.Parallel()
	p := start(t)
	words := need.Get(lockScript.run(soon(t), outside(t), nil, "meet", 0, 0, "", "", 0).StringSlice())(t)
	p.client.Close() // from now on, any request would fail
	wantErr(t, p.meet(soon(t), words), nil)
}

// In a grace period, the script grants neither a free lock nor a share of a lock beside readers. A contender that the old primary has
// granted the lock does not get it either, if it has not learned of that. A holder that knows of its grant keeps the lock.
func TestNobodyIsGrantedALockInAGracePeriod(t *testing.T) {
	t.Parallel()
	s := ownServer(t, redisserver.Config{NoSync: true})
	log, logger := logtest.New(slog.LevelInfo)
	p := startAt(t, []string{s.Addr()}, tier.WithLeaseTTL(long), tier.WithLogger(logger))
	q := startAt(t, []string{s.Addr()}, tier.WithLeaseTTL(long))
	reading := second.Options{Mode: second.Reading}
	reader := mustAcquire(t, p.with(t, "read", reading))
	untold := p.anew("untold")
	need.That(t, "a free lock was not granted", p.stands(t, queue.Enter, untold, 0).Has)
	renew(t, s)

	v := p.does(t, queue.Command{Op: queue.Beat, Among: []queue.Ref{untold}}).Views[0]
	need.That(t, fmt.Sprintf("a contender that has not learned of its grant has the lock: %+v", v), !v.Has && v.Again != 0 && v.InGracePeriod)
	_, err := p.at(t, "free").TryAcquire(soon(t))
	var gracePeriod *second.GracePeriodError
	need.Must(t, fmt.Sprintf("a try: %v, want ErrLocked because of a grace period", err),
		errors.Is(err, second.ErrLocked) && errors.As(err, &gracePeriod) && strings.HasSuffix(err.Error(), ": "+gracePeriod.Error()))
	need.Between(t, "the grace period lasts for", time.Until(gracePeriod.Until), long/2, long)
	need.Has(t, "its reason", gracePeriod.Reason, "promoted")
	free, other := q.anew("free"), q.anew("read")
	other.Reads = true
	for _, c := range []queue.Ref{free, other} {
		v := q.stands(t, queue.Enter, c, 0)
		need.That(t, fmt.Sprintf("%s: %+v, want to wait for the end of the grace period", c.Path, v), !v.Has && v.InGracePeriod && v.Again != 0)
	}
	need.Equal(t, "the value of the key of a free lock", need.Get(redisserver.Ask(s.Addr(), "GET", "free"))(t)[0], "")
	for path, want := range map[string]bool{"free": true, "read": false} {
		queue := need.Get(p.at(t, path).Contenders(soon(t)))(t)
		need.That(t, fmt.Sprintf("%s: %+v, want the first in a grace period: %t", path, queue, want),
			len(queue) > 0 && queue[0].InGracePeriod == want)
	}
	before := reader.ValidUntil()
	p.tier.Renew()
	eventually(t, "the reader that was there is renewed", func() bool { return reader.ValidUntil().After(before) || reader.Err() != nil })
	wantErr(t, reader.Err(), nil)

	need.OK(t, remember(s.Addr())) // ends the grace period
	q.primaries.Clear()
	for _, c := range []queue.Ref{free, other} {
		v := q.stands(t, queue.Look, c, 0)
		need.That(t, fmt.Sprintf("%s after the grace period: %+v", c.Path, v), v.Has && !v.InGracePeriod)
	}
	q.leaves(t, free, other, untold)
	mustRelease(t, reader)
	p.tier.Close() // waits until all lines are logged
	need.Equal(t, "lines logged", len(log.Lines(slog.LevelWarn, "redislock: grace period; the store grants no lock until it ends")), 1)
}

// Only the first process can declare a server new, and only once, for the first primary.
func TestNewServerHasNoGracePeriod(t *testing.T) {
	t.Parallel()
	s := childtest.Start(t, redisserver.Start, redisserver.Config{NoSync: true})
	first := startAt(t, []string{s.Addr()}, WithNewServer(), tier.WithLeaseTTL(long))
	refused := func() {
		t.Helper()
		client := redis.NewClient(&redis.Options{Addr: s.Addr()})
		locks := registry(t, client, WithNewServer(), tier.WithLazyStart())
		need.WantErr(t, "another process", need.ErrOf(New(soon(t), client, WithNewServer())), errUsed)
		wantErr(t, need.ErrOf(locks.Mutex("x").Acquire(soon(t))), errUsed)
		wantErr(t, locks.Err(), errUsed)
	}
	for _, p := range []*process{first, startAt(t, []string{s.Addr()}, tier.WithLeaseTTL(long))} { // the same for another process
		mustRelease(t, need.Get(p.at(t, "x").TryAcquire(soon(t)))(t))
	}
	refused() // refused because a record exists
	first.declared.Store(false)
	first.primaries.Clear()
	if err := first.examine(soon(t)); err != nil { // repeats the declaration, as if its answer was lost
		t.Errorf("said again: %v", err)
	}
	renew(t, s)
	need.WantErr(t, "a session with the next primary", first.examine(soon(t)), nil)
	need.Equal(t, "primaries that were met", strings.Count(first.met(), "="), 1)
	err := need.ErrOf(first.at(t, "x").TryAcquire(soon(t)))
	need.That(t, fmt.Sprintf("after a promotion: %v, want a grace period", err), errors.As(err, new(*second.GracePeriodError)))
	asks(t, s, "FLUSHALL")
	refused() // refused because the server was promoted
	first.declared.Store(false)
	first.primaries.Clear()
	if v := first.stands(t, queue.Enter, first.anew("y"), 0); v.Has || !v.InGracePeriod || strings.Count(first.met(), "=") != 1 {
		t.Errorf("%+v, want a grace period of this primary, although a process declares it new: %s", v, first.met())
	}
}

// A primary without contact to its replicas accepts writes for a while, the lag. The grace period of the new primary is longer by that lag.
// The old holder therefore learns of its loss before another process gets the lock.
func TestHolderAtAPrimaryThatWasReplacedKnowsOfItsLossFirst(t *testing.T) {
	t.Parallel()
	const lag = time.Second + rounding
	e := childtest.StartEnsemble(t, redisserver.StartEnsemble, 3, redisserver.Config{NoSync: true, MinReplicas: 1, MaxLag: 1})
	old, replica := e.Members[0], e.Members[1]
	need.OK(t, remember(old.Addr()))
	eventually(t, "the replica has the record", func() bool {
		keys, err := redisserver.Ask(replica.Addr(), "KEYS", records+"*")
		return err == nil && len(keys) > 0
	})
	a, b := startAt(t, []string{old.Addr()}), startAt(t, []string{replica.Addr(), old.Addr()})
	need.Equal(t, "a grace period of", a.gracePeriod(), ttl+lag)
	c := mustAcquire(t, a.at(t, "x"))
	e.Isolate(old)
	promoted := time.Now()
	need.OK(t, e.Promote(replica))
	b.wire.network.Isolate(2) // keeps b from connecting to the old primary, which still acts as one
	b.wire.reset()
	next := mustAcquire(t, b.at(t, "x"))
	wantErr(t, c.Err(), second.ErrLost)
	need.AtLeast(t, "granted after", time.Since(promoted), ttl+lag)
	mustRelease(t, next)
}

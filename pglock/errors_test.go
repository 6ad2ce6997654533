package pglock

import (
	"context"
	"fmt"
	"math"
	"strings"
	"testing"
	"time"

	"github.com/tierlock/tierlock/internal/need"
	"github.com/tierlock/tierlock/internal/queue"
	"github.com/tierlock/tierlock/internal/waittest"
)

// What the driver refuses to encode was not sent. To repeat it changes nothing, and the server answers others.
func TestValueThatCannotBeEncodedIsTheCallersError(t *testing.T) {
	t.Parallel()
	_, err := outside(t).Exec(soon(t), "SELECT $1::int", math.MaxInt64)
	need.That(t, fmt.Sprintf("classified as %v, answered %v: %v", classify(err), answered(err), err),
		classify(err) == queue.Denied && answered(err))
}

// A transaction that is stuck has the queue. The server answers, and says what is in front.
func TestStuckTransactionIsNoOutage(t *testing.T) {
	t.Parallel()
	p := start(t, WithLeaseTTL(2*ttl))
	stuck := begun(t, outside(t))
	ask[any](t, stuck, "SELECT pg_advisory_xact_lock(tierlock.key($1))::text", lockPath(t))
	w := waittest.Begin(t, p.at(t, lockPath(t)).Acquire)
	c := must(t, p.at(t, lockPath(t)+"-2"))
	a := c.Store().Do(soon(t), queue.Command{Op: queue.Leave, Ref: queue.Ref{Path: lockPath(t), ID: newID()}})
	need.That(t, fmt.Sprintf("%+v", a), a.Outcome == queue.Failed && a.Away == nil && refusal(a.Err) == "55P03")
	need.OK(t, p.Err())
	mustRelease(t, c)
	stuck.Rollback(soon(t))
	mustRelease(t, w.Must(t))
}

// Requests of this process that wait for one another are no outage: to take them for one would break the connections of them all.
func TestBusyConnectionsAreNoOutage(t *testing.T) {
	t.Parallel()
	p := start(t, WithLeaseTTL(unhurried))
	s := must(t, p.at(t, lockPath(t)+"-2")).Store()
	stuck := begun(t, outside(t))
	ask[any](t, stuck, "SELECT pg_advisory_xact_lock(tierlock.key($1))::text", lockPath(t))
	leave := func(ctx context.Context) queue.Answer {
		return s.Do(ctx, queue.Command{Op: queue.Leave, Ref: queue.Ref{Path: lockPath(t), ID: newID()}})
	}
	answers := make(chan queue.Answer, maxRequests)
	for range maxRequests {
		go func() { answers <- leave(soon(t)) }()
	}
	eventually(t, "requests that wait for the stuck transaction", func() bool {
		return ask[int](t, outside(t), "SELECT count(*) FROM pg_locks WHERE NOT granted AND "+ofLock+"::text::bigint",
			ask[string](t, outside(t), "SELECT tierlock.key($1)::text", lockPath(t))) == maxRequests
	})
	a := leave(need.Within(t, 100*time.Millisecond))
	need.That(t, fmt.Sprintf("%+v", a), a.Outcome == queue.Failed && a.Away == nil)
	wantErr(t, a.Err, errBusy)
	stuck.Rollback(soon(t))
	for range maxRequests {
		a := <-answers
		need.That(t, fmt.Sprintf("one that was under way: %+v", a), a.Outcome == queue.Done)
	}
}

// The person on call has to know which server it is.
func TestOutageNamesTheServers(t *testing.T) {
	forEach(t, func(t *testing.T, f flavour) {
		p := f.start(t, sharedURL(t))
		t.Cleanup(p.network.sever())
		p.network.reset()
		eventually(t, "an error that names the server", func() bool {
			err := p.Err()
			return err != nil && strings.Contains(err.Error(), "PostgreSQL at "+server(t).Addr()+" cannot be reached")
		})
	})
}

func TestOtherServersAreRefusedByName(t *testing.T) {
	t.Parallel()
	for version, system := range map[string]string{
		"CockroachDB CCL v23.2.4 (x86_64-pc-linux-gnu, built 2024/04/08 21:51:14, go1.21.7 X:nocoverageredesign)":                     "CockroachDB",
		"PostgreSQL 11.2-YB-2.20.1.3-b0 on x86_64-pc-linux-gnu, compiled by clang version 16.0.6, 64-bit":                             "YugabyteDB",
		"PostgreSQL 15.2-YB-2.25.0.0-b0 on x86_64-pc-linux-gnu, compiled by clang version 17.0.6, 64-bit":                             "YugabyteDB",
		"PostgreSQL 15.14 (Debian 15.14-0+deb12u1) on x86_64-pc-linux-gnu, compiled by gcc (Debian 12.2.0-14+deb12u1) 12.2.0, 64-bit": "",
		"PostgreSQL 16.6 on aarch64-unknown-linux-gnu, compiled by aarch64-unknown-linux-gnu-gcc (GCC) 9.5.0, 64-bit":                 "",
		"EnterpriseDB 17.2 on x86_64-pc-linux-gnu": "",
	} {
		err := checkVersion(version)
		if system == "" {
			need.OK(t, err)
			continue
		}
		wantErr(t, err, errServer)
		need.WantMention(t, err, system)
	}
}

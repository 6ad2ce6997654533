package gocronlock_test

import (
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-co-op/gocron/v2"

	"github.com/tierlock/tierlock/contrib/gocronlock"
	"github.com/tierlock/tierlock/election"
	"github.com/tierlock/tierlock/internal/test/locktest"
	"github.com/tierlock/tierlock/internal/test/need"
	"github.com/tierlock/tierlock/tier"
	"github.com/tierlock/tierlock/zklock/zktest"
)

var _ gocron.Elector = (*gocronlock.Elector)(nil)

func elector(t *testing.T, locks *tier.Registry, opts ...gocronlock.Option) *gocronlock.Elector {
	quiet := gocronlock.WithLogger(slog.New(slog.DiscardHandler))
	e := gocronlock.NewElector(locks, "/scheduler", append([]gocronlock.Option{quiet}, opts...)...)
	t.Cleanup(func() { e.Close() })
	synctest.Wait()
	return e
}

// leads checks that only the first of some electors leads.
func leads(t *testing.T, leader *gocronlock.Elector, others ...*gocronlock.Elector) {
	t.Helper()
	synctest.Wait()
	locktest.WantErr(t, "the leader", leader.IsLeader(t.Context()), nil)
	for _, other := range others {
		locktest.WantErr(t, "an elector that does not lead", other.IsLeader(t.Context()), election.ErrNotLeader)
	}
}

func TestOneElectorLeadsUntilItIsClosed(t *testing.T) {
	locktest.Bubble(t, func(t *testing.T, srv *zktest.Server) {
		one, other := elector(t, process(t, srv)), elector(t, process(t, srv))
		leads(t, one, other)
		for range 2 {
			locktest.WantErr(t, "Close", one.Close(), nil)
		}
		leads(t, other, one)
	})
}

// A function that is passed to OnSlot may call the elector.
func TestOnSlotIsToldWhoLeads(t *testing.T) {
	locktest.Bubble(t, func(t *testing.T, srv *zktest.Server) {
		var e *gocronlock.Elector
		var told []error
		again := false
		tell := gocronlock.OnSlot(func(path string, err error) {
			if told = append(told, err); !again {
				again = true
				e.IsLeader(t.Context())
			}
		})
		leader := elector(t, process(t, srv))
		e = elector(t, process(t, srv), tell)
		e.IsLeader(t.Context())
		leader.Close()
		leads(t, e)
		need.Len(t, "told", told, 3)
		need.That(t, fmt.Sprintf("%v, want ErrNotLeader twice, and a run", told), errors.Is(told[0], election.ErrNotLeader) && told[2] == nil)
	})
}

func TestAtLeastKeepsTheLeadAfterTheLastRun(t *testing.T) {
	locktest.Bubble(t, func(t *testing.T, srv *zktest.Server) {
		one, other := elector(t, process(t, srv), gocronlock.AtLeast(time.Second)), elector(t, process(t, srv))
		leads(t, one, other)
		time.Sleep(time.Minute)
		leads(t, one, other) // gives a run time to begin
		time.Sleep(time.Second / 4)
		closed := make(chan time.Time)
		go func() {
			one.Close()
			closed <- time.Now()
		}()
		began := time.Now()
		synctest.Wait()
		need.That(t, "a run could begin while the elector is closed", one.IsLeader(t.Context()) != nil)
		time.Sleep(time.Second/2 + time.Second/8)
		need.That(t, "another one leads before the time is over", other.IsLeader(t.Context()) != nil)
		need.Between(t, "Close, which waits for the rest of a second, took", (<-closed).Sub(began), 3*time.Second/4, time.Second)
		leads(t, other, one)
	})
}

func TestWhatBecomesOfTheLeadIsLogged(t *testing.T) {
	locktest.Bubble(t, func(t *testing.T, srv *zktest.Server) {
		var log strings.Builder
		logged := func(want ...string) {
			t.Helper()
			synctest.Wait()
			need.Has(t, "logged", log.String(), want...)
			log.Reset()
		}
		locks := process(t, srv)
		e := elector(t, locks, gocronlock.WithLogger(slog.New(slog.NewTextHandler(&log, nil))))
		leads(t, e)
		logged(`level=INFO msg="leading: this process runs the jobs`)
		locks.Close()
		time.Sleep(time.Second) // waits for the next campaign
		logged(`level=WARN msg="leadership lost`, `level=WARN msg="campaign ended`)
		locktest.WantErr(t, "Close of an elector whose registry was closed before", e.Close(), tier.ErrClosed)
	})
}

package verdict

import (
	"testing"
	"time"

	"github.com/tierlock/tierlock/internal/test/child/childtest"
	"github.com/tierlock/tierlock/internal/test/need"
	"github.com/tierlock/tierlock/stress/internal/clock"
	"github.com/tierlock/tierlock/stress/internal/relay"
	"github.com/tierlock/tierlock/stress/internal/store"
)

func TestProgramsInOtherLanguagesTakeTurnsAndNoticeALoss(t *testing.T) {
	found, absent, err := foreign(t.TempDir())
	need.OK(t, err)
	if found == nil {
		t.Skip(absent)
	}
	cluster, err := store.ZooKeeper.Start(t.Context(), store.Shape{Members: 1, Hasty: true})
	childtest.Check(t, err)
	defer func() { need.OK(t, cluster.Stop()) }()
	for _, s := range found {
		t.Run(s.Name, func(t *testing.T) {
			r := need.Get(relay.New(cluster.Addrs(), 0))(t)
			defer r.Close()
			owner := need.Get(startParty(t.Context(), "owner", s, task{s.Name, r.Addrs(), "/" + s.Name, lease}))(t)
			defer owner.end() //nolint:errcheck // It is killed.
			waiter := need.Get(startParty(t.Context(), "waiter", s, task{s.Name, cluster.Addrs(), "/" + s.Name, lease}))(t)
			defer waiter.end() //nolint:errcheck // likewise
			need.Must(t, "no version", owner.began.Version != "")

			// obey sends an order to a process, and waits until the process has reported what the order leads to.
			obey := func(p *party, order, what string) {
				t.Helper()
				p.order(order)
				need.OK(t, p.await(t.Context(), what, patience))
			}
			obey(owner, acquire, granted)
			waiter.order(acquire)
			need.WantErr(t, "the waiter", waiter.await(t.Context(), granted, time.Second), errLate)
			obey(owner, release, released)
			need.OK(t, waiter.await(t.Context(), granted, patience))
			obey(waiter, release, released)

			obey(owner, acquire, granted)
			waiter.order(acquire)
			r.Cut()
			need.OK(t, owner.await(t.Context(), over, patience))
			need.OK(t, waiter.await(t.Context(), granted, patience))
			need.Equal(t, "the verdict", judge(append(owner.turns, waiter.turns...), 0, clock.Now()), verdict{})
			need.AtLeast(t, "turns of the owner", len(owner.turns), 2)
		})
	}
}

package pglock

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/tierlock/tierlock/internal/need"
	"github.com/tierlock/tierlock/internal/second"
	"github.com/tierlock/tierlock/tier"
)

// Whoever gets ErrUnknown has to look, and whoever gets another error need not. When the lock is lost, the holder knows before
// anybody else has it, and nothing is committed.
func TestOutcomeOfAnAdvisoryTransaction(t *testing.T) {
	t.Parallel()
	mine := errors.New("mine")
	type scene struct {
		*testing.T
		p     *process
		hold  *tier.Hold
		table string
		end   context.CancelCauseFunc // of the context of the transaction
	}
	unanswered := func(s scene, committing func()) {
		s.p.network.onRequest(func(request []byte) {
			if containsAny(request, "commit\x00") {
				s.p.network.messages(func() bool { return true })
				committing()
			}
		})
	}
	sleep := func(ctx context.Context, tx pgx.Tx) error {
		_, err := tx.Exec(ctx, "SELECT pg_sleep(60)")
		return err
	}
	type row struct {
		hurried  bool // the lease is to be over soon
		before   func(scene)
		during   func(scene, pgx.Tx) error
		want     []error
		text     string
		survives bool
	}
	need.Each(t, map[string]row{
		"the answer of the commit is lost": {
			before: func(s scene) { unanswered(s, func() {}) },
			want:   []error{tier.ErrUnknown},
		},
		"the context ends in the commit": {
			before: func(s scene) {
				unanswered(s, func() {
					s.end(mine)
					<-s.hold.Lost()
				})
			},
			want: []error{tier.ErrUnknown, mine},
		},
		"the context ends before the commit": {
			during: func(s scene, _ pgx.Tx) error {
				closed := make(chan error, 10)
				s.p.network.onClose(func() { closed <- s.hold.Err() })
				s.end(mine)
				wantErr(s, <-closed, tier.ErrLost)
				return nil
			},
			want: []error{tier.ErrLost, mine},
		},
		"the function fails as the context ends": {
			during: func(s scene, tx pgx.Tx) error {
				time.AfterFunc(20*time.Millisecond, func() { s.end(mine) })
				return sleep(s.Context(), tx)
			},
			want: []error{tier.ErrLost, mine},
		},
		"the context of a statement ends": { // the driver closes the connection then, in the background
			during: func(s scene, tx pgx.Tx) error {
				if err := sleep(need.Within(s, 20*time.Millisecond), tx); err == nil || !errors.Is(s.hold.Err(), tier.ErrLost) {
					s.Errorf("the connection is being closed while the hold says %v", s.hold.Err())
				}
				return nil
			},
			want: []error{tier.ErrLost},
		},
		"the lease ends": { // before the server ends the session, so it could still commit
			hurried: true,
			during: func(s scene, _ pgx.Tx) error {
				<-s.hold.Lost()
				return nil
			},
			want: []error{tier.ErrLost},
		},
		"the session is over before": {
			before: func(s scene) { endSession(s.T, contenders(s, s.p.at(s, s.hold.Path()))[0].ID) },
			want:   []error{tier.ErrLost}, text: "the session at the server is over",
		},
		"the function fails once the session is over": {
			during: func(s scene, tx pgx.Tx) error {
				endSession(s.T, fmt.Sprint(tx.Conn().PgConn().PID()))
				if err := increment(s.Context(), s.table)(tx); err == nil {
					s.Error("the session is not over")
				}
				return mine
			},
			want: []error{tier.ErrLost, mine},
		},
		"the server refuses what was deferred": {
			before: func(s scene) {
				exec(s.T, outside(s), "ALTER TABLE "+s.table+" ADD UNIQUE (n) DEFERRABLE INITIALLY DEFERRED")
			},
			during: func(s scene, tx pgx.Tx) error {
				_, err := tx.Exec(s.Context(), "INSERT INTO "+s.table+" VALUES (1)")
				return err
			},
			text: "23505", survives: true,
		},
	}, func(t *testing.T, c row) {
		t.Parallel()
		lease := unhurried
		if c.hurried {
			lease = ttl
		}
		ctx, end := context.WithCancelCause(soon(t))
		defer end(nil)
		p := advisories.start(t, sharedURL(t), WithLeaseTTL(lease))
		s := scene{t, p, p.holds(t), table(t), end}
		if c.before != nil {
			c.before(s)
		}
		err := Tx(ctx, s.hold, func(tx pgx.Tx) error {
			err := increment(ctx, s.table)(tx)
			if err == nil && c.during != nil {
				err = c.during(s, tx)
			}
			return err
		})
		need.WantMention(t, err, c.text)
		for _, is := range []error{tier.ErrUnknown, tier.ErrLost, mine} {
			need.Equal(t, fmt.Sprintf("whether %v is %v", err, is), errors.Is(err, is), slices.Contains(c.want, is))
		}
		need.Equal(t, "whether the hold survives", !errors.Is(s.hold.Err(), tier.ErrLost), c.survives)
		if !c.survives {
			mustRelease(t, advisories.start(t, sharedURL(t)).mustAcquire(t))
		}
		need.That(t, "something was committed", errors.Is(err, tier.ErrUnknown) || value(t, s.table) == 0)
	})
}

func TestAdvisoryTransactionHasAWholeLease(t *testing.T) {
	t.Parallel()
	hold := advisories.start(t, sharedURL(t)).holds(t)
	time.Sleep(ttl / 10) // since when the lease has not been renewed, as a rule
	begun := time.Now()
	need.OK(t, Tx(soon(t), hold, func(pgx.Tx) error {
		need.AtLeast(t, "the lease at the beginning", second.GrantOf(hold).ValidUntil().Sub(begun), ttl-ttl/3-time.Millisecond)
		return nil
	}))
}

func TestNobodyGetsAnAdvisoryLockDuringATransaction(t *testing.T) {
	t.Parallel()
	hold := advisories.start(t, sharedURL(t), WithLeaseTTL(unhurried)).holds(t)
	other := advisories.start(t, sharedURL(t), WithLeaseTTL(unhurried)).waits(t)
	tab, released := table(t), make(chan error, 1)
	wantErr(t, Tx(soon(t), hold, func(tx pgx.Tx) error {
		go func() { released <- hold.Release() }()
		other.Pending(t)
		return increment(soon(t), tab)(tx)
	}), tier.ErrReleased)
	wantErr(t, <-released, nil)
	mustRelease(t, other.Must(t))
	need.Equal(t, "rows committed by one that has given the lock up", value(t, tab), 0)
}

package queue

import (
	"cmp"
	"context"
	"errors"
	"fmt"

	"github.com/tierlock/tierlock/internal/second"
)

// Guarding returns the contenders of the locks that a guarded write depends on, and their store. All of them have to be in one store of
// type S. Otherwise Guarding returns an error, in which name stands for that kind of store.
func Guarding[S interface {
	Store
	comparable
}](g second.Guard, name string,
) (s S, all []*Contender, err error) {
	for i, grant := range g.Grants {
		c, _ := grant.(*Contender)
		there, ok := c.Store().(S)
		switch {
		case !ok && len(g.Grants) == 1:
			return s, nil, fmt.Errorf("this lock is not on %s", name)
		case !ok:
			return s, nil, fmt.Errorf("not all of these locks are on %s", name)
		case i > 0 && there != s:
			return s, nil, errors.New("the locks belong to several registries; one transaction cannot check them all")
		}
		s, all = there, append(all, c)
	}
	return s, all, nil
}

// Write sends a guarded write, unless check returns an error. check should call [Contender.Err] of all contenders. The error of Write
// wraps [second.ErrUnknown] if the outcome is Unknown, or if ctx ends before the outcome is known.
//
// [Contender.Idle] returns false from before the call of check until the write cannot take effect any more. Before a lock is handed off
// within the process, the caller makes check fail, and then waits until the contender is idle. No write of the previous user can then take
// effect later.
func Write(ctx context.Context, all []*Contender, check func() error, send func() (Outcome, error)) error {
	finish := func() {
		for _, c := range all {
			c.pending.Add(-1)
		}
	}
	for _, c := range all {
		c.pending.Add(1) // before check, so that no contender seems idle after a check has succeeded
	}
	if err := cmp.Or(check(), context.Cause(ctx)); err != nil {
		finish()
		return err
	}
	unknown := func(cause error) error { return fmt.Errorf("%w: %w", second.ErrUnknown, cause) }
	spawn := func(task func()) (begun bool) {
		if begun = all[0].claim.tier.Spawn(task); !begun {
			finish()
		}
		return begun
	}
	_, err := second.Do(ctx, spawn, func() (any, error) {
		outcome, err := send()
		if outcome == Unknown { // the write may take effect as long as this process has the locks, so it stays pending
			return nil, unknown(err)
		}
		finish()
		return nil, err
	}, unknown)
	return err
}

// Write is [Write] for this contender alone.
func (c *Contender) Write(ctx context.Context, check func() error, send func() (Outcome, error)) error {
	return Write(ctx, []*Contender{c}, check, send)
}

// Save repeats its command until the store has answered, as long as the contender has the lock. If a command is executed late, a later one
// with a higher Turn may have been executed before. The store then ignores the late command.
func (c *Contender) Save(ctx context.Context, check func() error, data []byte) error {
	t, cmd := c.claim.tier, c.command(Save)
	cmd.Data, cmd.Turn = data, c.saves.Add(1)
	err := c.Write(ctx, check, func() (Outcome, error) {
		ambiguous := false
		a, err := t.repeat(c.tenure, func() Answer {
			a := t.do(c.tenure, cmd)
			ambiguous = ambiguous || a.Outcome == Unknown
			return a
		})
		switch a.Outcome {
		case Done:
			return Done, nil
		case Expired:
			t.expire(c.session, a.Err)
			err = c.Err()
		case Gone:
			loss := c.Missing()
			err = cmp.Or(check(), loss)
		}
		if ambiguous { // the store may have executed an earlier try
			return Unknown, err
		}
		return Failed, err
	})
	if err != nil {
		return c.claim.failure("save the value of", err)
	}
	return nil
}

// MayLoseValue returns an error if the store may evict the value that Save stores. The error says why, and what to do.
func (c *Contender) MayLoseValue() error {
	if evicts := c.claim.tier.config.Evicts; evicts != nil {
		return evicts()
	}
	return nil
}

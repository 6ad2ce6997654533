package slots

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/tierlock/tierlock/internal/queue"
	"github.com/tierlock/tierlock/tier"
)

// format is the first field of a ledger of this version.
const format = "tierlock slots 1"

// A ledger is the value beside the lock. It says which slot was begun last, and how it ended.
type ledger struct {
	Format  string    `json:"format"`
	Slot    time.Time `json:"slot"`
	State   state     `json:"state"`
	Attempt int       `json:"attempt,omitempty"`
	Token   int64     `json:"token,omitempty"` // the token of the hold under which the ledger was last written
	Retry   time.Time `json:"retry,omitzero"`  // when a failed slot runs again; the zero time if it does not
	Next    time.Time `json:"next"`            // the slot after this one, by the schedule of the process that wrote the ledger
}

type state string

const (
	begun   state = "begun"
	done    state = "done"
	failed  state = "failed"
	skipped state = "skipped"
)

// lasts returns an error if the store may evict the ledger. Without its ledger, a slot would run twice.
func lasts(hold *tier.Hold) error {
	guard, err := tier.GuardOf(hold)
	if err != nil {
		return err
	}
	if c, ok := guard.Grants[0].(*queue.Contender); ok { // ZooKeeper has grants of another type, and evicts nothing
		if err := c.MayLoseValue(); err != nil {
			return fmt.Errorf("slots: %s: if the server evicts the ledger, a slot runs twice: %w", hold.Path(), err)
		}
	}
	return nil
}

// load reads the ledger. If the lock was never used for slots, there is no ledger, and found is false.
func load(ctx context.Context, m *tier.Mutex) (l ledger, found bool, err error) {
	v, err := m.Load(ctx)
	if errors.Is(err, tier.ErrNoValue) {
		return l, false, nil
	}
	if err != nil {
		return l, false, err
	}
	if json.Unmarshal(v.Data, &l) != nil || l.Format != format {
		return l, false, fmt.Errorf("slots: the value beside the lock %s is not a ledger that begins with %q; "+
			"another program, or another version of slots, has saved this value: use another path, or remove the value with Hold.Forget",
			m.Path(), format)
	}
	return l, true, nil
}

func (l ledger) save(ctx context.Context, hold *tier.Hold) error {
	l.Format, l.Token = format, hold.Token()
	data, err := json.Marshal(l)
	if err != nil { // JSON cannot express the time, for example because its year is too large
		return fmt.Errorf("slots: %s: slot %v: %w", hold.Path(), l.Slot, err)
	}
	return hold.Save(ctx, data)
}

package slots

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/tierlock/tierlock/tier"
)

// format marks a ledger of this version.
const format = "tierlock slots 1"

// A ledger is the value beside the lock: the newest slot that was begun, and how it ended.
type ledger struct {
	Format  string    `json:"format"`
	Slot    time.Time `json:"slot"`
	State   state     `json:"state"`
	Attempt int       `json:"attempt,omitempty"`
	Token   int64     `json:"token,omitempty"` // of the hold that has begun it
	Retry   time.Time `json:"retry,omitzero"`  // when a failed slot runs again; the zero time if it does not
	Next    time.Time `json:"next"`            // the slot after it, by the schedule of the writer
}

type state string

const (
	begun   state = "begun"
	done    state = "done"
	failed  state = "failed"
	skipped state = "skipped"
)

// load reads the ledger; there is none in a lock that was never used for slots.
func load(ctx context.Context, m *tier.Mutex) (l ledger, found bool, err error) {
	v, err := m.Load(ctx)
	if errors.Is(err, tier.ErrNoValue) {
		return l, false, nil
	}
	if err != nil {
		return l, false, err
	}
	if json.Unmarshal(v.Data, &l) != nil || l.Format != format {
		return l, false, fmt.Errorf("slots: the value beside %s is not a ledger that begins with %q; another program or version of slots has "+
			"saved it: use another path, or remove it with Hold.Forget", m.Path(), format)
	}
	return l, true, nil
}

func (l ledger) save(ctx context.Context, hold *tier.Hold) error {
	l.Format, l.Token = format, hold.Token()
	data, err := json.Marshal(l)
	if err != nil { // a time that no text has
		return fmt.Errorf("slots: %s: slot %v: %w", hold.Path(), l.Slot, err)
	}
	return hold.Save(ctx, data)
}

package tier

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/tierlock/tierlock/internal/second"
)

// maxValue is the largest number of bytes that [Hold.Save] accepts.
const maxValue = 16 << 10

// A Value is what [Hold.Save] saved beside a lock.
type Value struct {
	Data  []byte
	Token int64     // of the hold that saved it
	Saved time.Time // by the clock of the store, and on etcd by the clock of the writer
}

// ErrNoValue means that no value is saved beside the lock.
var ErrNoValue = second.ErrNoValue

// errReads is the error of a Save with a read hold.
var errReads = errors.New("a read hold cannot save a value")

// Save writes up to 16 KiB of data beside the lock, in place of the value that is there. It is a guarded write: it takes effect only while
// this hold's lock is held. The value belongs to the path of the lock, outlives the hold and the process, and stays until another Save or
// [Hold.Forget]. A Mutex and a RWMutex of one path share it. Use the value for a checkpoint, a counter, or data that a leader publishes.
//
// Save takes one round trip, or two for the first value on ZooKeeper. It repeats a write whose answer was lost, until the store answers,
// ctx ends, or the lock is lost. The writes of one hold take effect in the order of the calls.
//
// The value is unchanged if the error
//   - wraps [ErrLost] or [ErrReleased];
//   - is a refusal by the store, such as a missing permission;
//   - says that ctx had ended before the call, that data is longer than 16 KiB, or that the hold is a read hold.
//
// If the error wraps [ErrUnknown], the outcome is ambiguous: ctx ended, or the lock was lost, before the store answered. The write may
// still take effect, but not after another process has acquired the lock. Call [Mutex.Load] to see whether it did.
//
// Caution: a failover that loses writes may lose the newest value, as with any data in that store. See docs/stores.md.
func (h *Hold) Save(ctx context.Context, data []byte) error {
	if len(data) > maxValue {
		return fmt.Errorf("tier: save the value of %s: %d bytes are more than the limit of %d", h.Path(), len(data), maxValue)
	}
	return h.save(ctx, append([]byte{}, data...)) // a copy that is not nil; the caller may change data while the copy is still being sent
}

// Forget removes the value beside the lock. It is a guarded write with the same errors as [Hold.Save]. If there is no value, Forget returns
// nil.
func (h *Hold) Forget(ctx context.Context) error { return h.save(ctx, nil) }

func (h *Hold) save(ctx context.Context, data []byte) error {
	switch {
	case h == nil:
		return ErrReleased
	case h.shared:
		return fmt.Errorf("tier: save the value of %s: %w", h.Path(), errReads)
	}
	return h.own.grant.Save(ctx, h.Err, data)
}

// Load returns the newest value that [Hold.Save] saved beside the lock, with the token of the hold that saved it. It needs no hold. If
// nothing is saved, the error wraps [ErrNoValue].
//
// Load is linearizable: it returns the result of every Save that ended before Load began, whichever server answers. Therefore Load costs
// as much as a small write on every store but etcd. It takes one round trip, and two on ZooKeeper. Load blocks while the store cannot be
// reached until ctx ends; the error then wraps the cause of ctx. Other errors are those of [Mutex.Contenders].
func (m *Mutex) Load(ctx context.Context) (Value, error) {
	if m.invalid != nil {
		return Value{}, m.invalid
	}
	v, err := m.claim.Load(ctx)
	return Value{bytes.Clone(v.Data), v.Token, v.Saved}, err
}

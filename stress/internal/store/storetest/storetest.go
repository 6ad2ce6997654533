// Package storetest has a lock that excludes no other holder, for tests of the code that judges locks.
package storetest

import (
	"context"

	"github.com/tierlock/tierlock/stress/internal/store"
)

// DialBroken returns a locker that grants its lock to every caller at once.
func DialBroken(context.Context, store.Options) (store.Locker, error) { return broken{}, nil }

type broken struct{}

func (broken) Contender(string) (store.Contender, error) {
	return func(context.Context, int64) (store.Hold, error) { return Hold{Fence: 1}, nil }, nil
}

func (broken) Close() error { return nil }

// Hold is a hold that is never lost.
type Hold struct{ Fence int64 }

func (h Hold) Token() int64        { return h.Fence }
func (Hold) Lost() <-chan struct{} { return nil }
func (Hold) Err() error            { return nil }
func (Hold) Release() error        { return nil }

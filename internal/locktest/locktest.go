// Package locktest has processes with locks for tests, on a ZooKeeper in memory.
package locktest

import (
	"errors"
	"testing"
	"testing/synctest"

	"github.com/tierlock/tierlock"
	"github.com/tierlock/tierlock/tier"
	"github.com/tierlock/tierlock/zklock"
	"github.com/tierlock/tierlock/zktest"
)

// Bubble runs f in virtual time, with a ZooKeeper of its own, and fails if a goroutine is left.
func Bubble(t *testing.T, f func(t *testing.T, srv *zktest.Server)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) { f(t, zktest.Start(t)) })
}

// Dial returns the locks of one more process.
func Dial(t *testing.T, srv *zktest.Server, opts ...tierlock.Option) *tier.Registry {
	t.Helper()
	locks, err := tierlock.Dial(t.Context(), "127.0.0.1:2181", append(opts, zklock.WithDialContext(srv.DialContext))...)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { locks.Close() })
	return locks
}

// WantErr fails unless an error is, or wraps, the one that is wanted.
func WantErr(t *testing.T, what string, err, want error) {
	t.Helper()
	if !errors.Is(err, want) {
		t.Errorf("%s: got %v, want %v", what, err, want)
	}
}

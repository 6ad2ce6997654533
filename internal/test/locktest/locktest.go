// Package locktest provides tests with processes that have locks. The store is a ZooKeeper or a store in memory.
package locktest

import (
	"testing"
	"testing/synctest"

	"github.com/tierlock/tierlock/internal/test/need"
	"github.com/tierlock/tierlock/tier"
	"github.com/tierlock/tierlock/zklock"
	"github.com/tierlock/tierlock/zklock/zktest"
)

// Bubble runs f in virtual time, with a ZooKeeper of its own. The test fails if a goroutine is left at the end.
func Bubble(t *testing.T, f func(t *testing.T, srv *zktest.Server)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) { f(t, zktest.Start(t)) })
}

// Dial returns the locks of one more process.
func Dial(t *testing.T, srv *zktest.Server, opts ...tier.RegistryOption) *tier.Registry {
	t.Helper()
	locks, err := zklock.Dial(t.Context(), "127.0.0.1:2181", append(opts, zklock.WithDialContext(srv.DialContext))...)
	need.OK(t, err)
	t.Cleanup(func() { locks.Close() })
	return locks
}

// WantErr fails unless an error is the wanted error, or wraps it.
var WantErr = need.WantErr

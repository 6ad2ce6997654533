package certmagiclock_test

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/tierlock/tierlock"
	"github.com/tierlock/tierlock/tier"
	"github.com/tierlock/tierlock/zklock"
	"github.com/tierlock/tierlock/zktest"
	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// bubble runs f in virtual time, with a ZooKeeper of its own, and fails if a goroutine is left.
func bubble(t *testing.T, f func(t *testing.T, srv *zktest.Server)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) { f(t, zktest.Start(t)) })
}

// process returns the locks of one more process, which linger where nobody sees to it that they do not.
func process(t *testing.T, srv *zktest.Server) *tier.Registry {
	t.Helper()
	locks, err := tierlock.Dial(t.Context(), "127.0.0.1:2181", zklock.WithDialContext(srv.DialContext), tier.WithLinger(time.Hour))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { locks.Close() })
	return locks
}

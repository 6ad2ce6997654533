package notice

import (
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/tierlock/tierlock/internal/second"
	"github.com/tierlock/tierlock/internal/test/logtest"
	"github.com/tierlock/tierlock/internal/test/need"
)

// While a program waits for its first connection, the warning is repeated. Later, an outage is logged once if it lasts, and not at all if
// it is short.
func TestWhatIsLoggedOfAConnection(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		log, logger := logtest.New(slog.LevelInfo)
		c := NewConnection(Config{Logger: logger, Package: "storelock", Store: "Store",
			Why: func() error { return errors.New("why") }, Patience: func() time.Duration { return time.Minute }})
		go c.Run(t.Context())
		want := func(level slog.Level, text string, times int) {
			t.Helper()
			synctest.Wait()
			need.Equal(t, fmt.Sprintf("lines with %q in\n%s", text, log), len(log.Lines(level, text)), times)
		}
		for after, times := range map[time.Duration]int{3*time.Second - 1: 0, 3 * time.Second: 1, 9 * time.Second: 2, time.Hour: 17} {
			time.AfterFunc(after, func() { want(slog.LevelWarn, "storelock: still no connection to Store", times) })
		}
		time.Sleep(time.Hour + 1)
		c.Reach(true)
		c.Begin("1")
		want(slog.LevelInfo, "connected", 1)
		for range 3 {
			c.Reach(false)
			time.Sleep(time.Minute - 1)
			c.Reach(true)
			synctest.Wait()
		}
		want(slog.LevelInfo, "connected again", 1) // the other reconnections came soon after one that was logged
		want(slog.LevelWarn, "lost the connection to", 0)
		c.Reach(false)
		time.Sleep(time.Hour)
		want(slog.LevelWarn, "lost the connection to", 1)
		c.End("1")
		c.Reach(true)
		c.Begin("2")
		want(slog.LevelWarn, "session expired", 1)
		want(slog.LevelInfo, "new session", 1)
	})
}

// A listener learns once that a session has ended. If the next session ends without ever having been connected, the listener is not called
// again.
func TestFollowerLearnsTheStateAndThenEachChangeOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		_, logger := logtest.New(slog.LevelInfo)
		c := NewConnection(Config{Logger: logger, Why: func() error { return nil }, Patience: func() time.Duration { return time.Minute }})
		go c.Run(t.Context())
		var told []second.ConnectionState
		c.Begin("0") // this session is never connected, and ends when the next one begins
		synctest.Wait()
		c.Notify(func(n second.Connection) { told = append(told, n.State) })
		for _, change := range []func(){
			func() { c.Begin("1") }, func() { c.Reach(true) }, func() { c.Reach(false) }, func() { c.Reach(true) }, func() { c.Begin("2") },
			func() { c.End("1") }, func() { c.Reach(false) }, func() { c.End("2") }, func() { c.Reach(true) },
			func() { c.Reach(false) }, func() { c.Begin("3") }, func() { c.End("3") }, // session 3 was never connected
			func() { c.Begin("4") }, func() { c.Begin("5") }, func() { c.Reach(true) },
		} {
			synctest.Wait()
			change()
		}
		synctest.Wait()
		if want := []second.ConnectionState{
			second.Suspended, second.Connected, second.Suspended, second.Connected, second.Expired, second.Connected,
			second.Suspended, second.Expired, second.Connected,
		}; !slices.Equal(told, want) {
			t.Errorf("reported states %v, want %v", told, want)
		}
	})
}

// Before a listener was registered, a session may have been connected, and may have held locks. The listener learns of the end of that
// session, too.
func TestWhoAsksInAnOutageIsToldThatTheSessionEnds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		_, logger := logtest.New(slog.LevelInfo)
		c := NewConnection(Config{Logger: logger, Why: func() error { return nil }, Patience: func() time.Duration { return time.Minute }})
		go c.Run(t.Context())
		var told []second.ConnectionState
		for _, change := range []func(){
			func() { c.Reach(true) }, func() { c.Begin("1") }, func() { c.Reach(false) },
			func() { c.Notify(func(n second.Connection) { told = append(told, n.State) }) }, func() { c.End("1") },
		} {
			change()
			synctest.Wait()
		}
		if want := []second.ConnectionState{second.Suspended, second.Expired}; !slices.Equal(told, want) {
			t.Errorf("reported states %v, want %v", told, want)
		}
	})
}

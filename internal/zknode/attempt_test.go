package zknode

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-zookeeper/zk"

	"github.com/tierlock/tierlock/internal/retry"
	"github.com/tierlock/tierlock/internal/second"
	"github.com/tierlock/tierlock/internal/test/need"
	"github.com/tierlock/tierlock/internal/wire"
	"github.com/tierlock/tierlock/internal/zknode/internal/link"
	"github.com/tierlock/tierlock/zklock/zktest"
)

// An acquisition has to wait for abandoned attempts, also if an older one ends after the newest one was abandoned.
func TestTheNewestAbandonedAttemptIsWaitedForThoughAnOlderOneIsForgotten(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := need.Get(Dial(t.Context(), "127.0.0.1:2181", WithDialContext(zktest.Start(t).DialContext)))(t)
		defer c.Close()
		l := &Lock{client: c, path: "/x"}
		var leave [2]context.CancelFunc
		var end [2]chan struct{}
		for i := range end {
			var ctx context.Context
			ctx, leave[i] = context.WithCancel(t.Context())
			end[i] = make(chan struct{})
			stuck := func(*attempt) (*Node, error) { <-end[i]; return nil, errGone }
			go run(ctx, l.attempt(new(second.Wait)), "wait", stuck, (*Node).Release)
		}
		synctest.Wait()
		for i := range end {
			leave[i]()
			synctest.Wait()
		}
		var begun atomic.Bool
		close(end[0])
		synctest.Wait()
		begin := func(*attempt) (*Node, error) { begun.Store(true); return nil, nil }
		go run(t.Context(), l.attempt(new(second.Wait)), "go on", begin, (*Node).Release)
		synctest.Wait()
		need.That(t, "the attempt does not wait for the abandoned one", !begun.Load())
		close(end[1])
		synctest.Wait()
		need.That(t, "waited for one that has ended", begun.Load())
		c.abandoned.Range(func(path, _ any) bool {
			t.Errorf("remembered: %v", path)
			return true
		})
	})
}

// A request whose caller has left is taken out of its group before the group is sent. It then fails with the same error as without a
// connection, but its caller must get the end of its context.
func TestWhoHasLeftIsNotToldOfTheConnection(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := need.Get(Dial(t.Context(), "127.0.0.1:2181", WithDialContext(zktest.Start(t).DialContext)))(t)
		defer c.Close()
		ctx, leave := context.WithCancel(t.Context())
		leave()
		a := &attempt{client: c, ctx: ctx}
		err := a.pause(retry.New(), zk.ErrNoServer)
		need.That(t, fmt.Sprintf("got %v", err), errors.Is(err, context.Canceled) && a.trouble.Load() == nil)
	})
}

// A node of a session that has ended has no owner any more. It is deleted before the client looks for it, or it would stay until the server
// ends the session.
func TestNodeOfASessionThatHasEndedIsGoneBeforeItIsLookedFor(t *testing.T) {
	c := &Client{link: link.New(link.Config{})}
	c.link.Attach(nil, func() int64 { return 1 })
	s := c.link.Session()
	s.End(zk.ErrSessionExpired)
	l := &Lock{client: c, path: "/x"}
	n := newNode(l, s, link.Answer{Created: []string{"/x/lock-0000000001"}, Zxid: 1})
	a := &attempt{lock: l, client: c, listed: &listed{Answer: link.Answer{Children: []string{"lock-0000000001"}}}}
	need.WantErr(t, "enter", need.ErrOf(a.enter(n)), errGone)
}

func TestTheShortestAndTheLongestSessionTimeoutAreAccepted(t *testing.T) {
	need.Get(newOptions([]Option{WithSessionTimeout(time.Millisecond)}))(t)
	need.Get(newOptions([]Option{WithSessionTimeout((1<<31 - 1) * time.Millisecond)}))(t)
}

func TestTheConfigurationOfTLSIsCopied(t *testing.T) {
	var o options
	cfg := &tls.Config{ServerName: "before"}
	WithTLS(cfg).apply(&o)
	cfg.ServerName = "after"
	need.That(t, "changed after Dial", o.TLS.ServerName == "before")
	WithTLS(nil).apply(&o)
	need.That(t, "no configuration is no TLS", o.TLS != nil)
}

// An error decides whether its request may have been executed. Only errors that are known to be harmless say that it was not.
func TestWhatAnErrorSaysOfItsRequest(t *testing.T) {
	coded := func(code int) error { return fmt.Errorf("unknown error: %d", code) } // the client library returns this error for such a code
	for want, errs := range map[outcome][]error{
		done:    {nil},
		missing: {zk.ErrNoNode},
		refused: {zk.ErrNoServer, zk.ErrSessionExpired, coded(wire.CodeThrottled)},
		permanent: {second.ErrClosed, errNotOurs, zk.ErrNoAuth, zk.ErrInvalidACL, zk.ErrAuthFailed, zk.ErrNoChildrenForEphemerals,
			zk.ErrBadArguments, zk.ErrInvalidPath, zk.ErrNodeExists, zk.ErrNotEmpty, zk.ErrBadVersion,
			coded(wire.CodeUnimplemented), coded(wire.CodeLocalSession), coded(wire.CodeQuotaExceeded)},
		unknown: {zk.ErrConnectionClosed, zk.ErrClosing, zk.ErrSessionMoved, coded(-1), errors.New("something new")},
	} {
		for _, err := range errs {
			need.Equal(t, fmt.Sprint(err), classify(err), want)
			if err == nil {
				continue
			}
			need.Equal(t, fmt.Sprintf("%v, wrapped", err), classify(fmt.Errorf("of a request: %w", err)), want)
		}
	}
}

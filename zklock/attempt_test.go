package zklock

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/go-zookeeper/zk"

	"github.com/tierlock/tierlock/internal/wire"
	"github.com/tierlock/tierlock/zklock/internal/link"
)

// The older one may end when the next one has been abandoned, too.
func TestTheNewestAbandonedAttemptIsWaitedForThoughAnOlderOneIsForgotten(t *testing.T) {
	older, newer := make(chan struct{}), make(chan struct{})
	s := abandoned{last: make(map[string]chan struct{})}
	s.add("/x", older)
	s.add("/x", newer)
	s.remove("/x", older)
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if err := s.await(ctx, "/x"); err == nil {
		t.Error("nobody is waited for")
	}
	s.remove("/x", newer)
	if err := s.await(t.Context(), "/x"); err != nil {
		t.Error(err)
	}
	s.add("/x", newer) // it has ended before its caller left
	if len(s.last) > 0 {
		t.Errorf("remembered: %v", s.last)
	}
}

// It would never be held, and go only when the server says so.
func TestNodeOfASessionThatHasEndedIsGoneBeforeItIsLookedFor(t *testing.T) {
	c := &Client{link: link.New(link.Config{})}
	s := link.NewUnleased(c.link, 1, time.Second)
	s.End(zk.ErrSessionExpired)
	n := newNode(&Lock{client: c, path: "/x"}, s, link.Answer{Created: []string{"/x/lock-0000000001"}})
	if err := n.bind(s, 1); !errors.Is(err, errGone) {
		t.Errorf("got %v, want %v", err, errGone)
	}
}

func TestTheConfigurationOfTLSIsCopied(t *testing.T) {
	var o options
	cfg := &tls.Config{ServerName: "before"}
	WithTLS(cfg).apply(&o)
	if cfg.ServerName = "after"; o.tls.ServerName != "before" {
		t.Error("changed after Dial")
	}
	if WithTLS(nil).apply(&o); o.tls == nil {
		t.Error("no configuration is no TLS")
	}
}

// What is not known to be harmless may have been applied.
func TestWhatAnErrorSaysOfItsRequest(t *testing.T) {
	coded := func(code int) error { return fmt.Errorf("unknown error: %d", code) } // as the library says it
	for want, errs := range map[outcome][]error{
		done:    {nil},
		missing: {zk.ErrNoNode},
		refused: {zk.ErrNoServer, zk.ErrSessionExpired, coded(wire.CodeThrottled)},
		permanent: {ErrClosed, errNotOurs, zk.ErrNoAuth, zk.ErrInvalidACL, zk.ErrAuthFailed, zk.ErrNoChildrenForEphemerals,
			zk.ErrBadArguments, zk.ErrInvalidPath, zk.ErrNodeExists, zk.ErrNotEmpty, zk.ErrBadVersion,
			coded(wire.CodeUnimplemented), coded(wire.CodeLocalSession), coded(wire.CodeQuotaExceeded)},
		unknown: {zk.ErrConnectionClosed, zk.ErrClosing, coded(-1), errors.New("something new")},
	} {
		for _, err := range errs {
			if got := classify(err); got != want {
				t.Errorf("%v: got %d, want %d", err, got, want)
			}
			if err == nil {
				continue
			}
			if got := classify(fmt.Errorf("of a request: %w", err)); got != want {
				t.Errorf("%v, wrapped: got %d, want %d", err, got, want)
			}
		}
	}
}

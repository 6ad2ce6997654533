package zklock

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/go-zookeeper/zk"
	"github.com/tierlock/tierlock/zklock/internal/link"
)

// An attempt may be forgotten a moment after it has ended, when the next one has been abandoned, too.
func TestTheNewestStragglerIsWaitedForThoughAnOlderOneIsForgotten(t *testing.T) {
	lock := &Lock{path: "/x"}
	older, newer := &attempt{lock: lock, done: make(chan struct{})}, &attempt{lock: lock, done: make(chan struct{})}
	s := stragglers{last: make(map[string]*attempt)}
	s.add(older)
	close(older.done)
	s.add(newer)
	s.remove(older)
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if err := s.await(ctx, "/x"); err == nil {
		t.Error("nobody is waited for")
	}
	close(newer.done)
	if err := s.await(t.Context(), "/x"); err != nil {
		t.Error(err)
	}
	s.remove(newer)
	s.add(newer) // it has ended before its caller left
	if len(s.last) > 0 {
		t.Errorf("remembered: %v", s.last)
	}
}

// It would never be held, and go only when the server says so.
func TestNodeOfASessionThatHasEndedIsGoneBeforeItIsLookedFor(t *testing.T) {
	c := &Client{link: link.New(link.Config{})}
	s := link.NewUnleased(c.link, 1, time.Second)
	s.End(zk.ErrSessionExpired)
	n := newNode(&Lock{client: c, path: "/x"}, s, []string{"/x/lock-0000000001"})
	if err := n.bind(s, 1); !errors.Is(err, errGone) {
		t.Errorf("got %v, want %v", err, errGone)
	}
}

package main

import (
	"context"
	"errors"
	"fmt"
	"testing"

	"github.com/go-zookeeper/zk"

	"github.com/tierlock/tierlock/tier"
)

// brokenLocker lets everybody in.
type brokenLocker struct{}

func (brokenLocker) Close() error { return nil }

func (brokenLocker) contender(string) (contender, error) {
	return func(context.Context) (held, error) { return brokenHeld{}, nil }, nil
}

type brokenHeld struct{}

func (brokenHeld) Token() int64          { return 0 }
func (brokenHeld) Lost() <-chan struct{} { return nil }
func (brokenHeld) Err() error            { return nil }
func (brokenHeld) Release() error        { return nil }

// leakyLocker is tier's lock and a node that goes only with the session.
type leakyLocker struct {
	locker
	conn *zk.Conn
}

func dialLeaky(ctx context.Context, cfg Config) (locker, error) {
	inner, err := dialTier(ctx, cfg)
	if err != nil {
		return nil, err
	}
	conn, err := connect(ctx, cfg.Servers)
	if err != nil {
		return nil, err
	}
	return leakyLocker{inner, conn}, nil
}

func (l leakyLocker) contender(path string) (contender, error) {
	acquire, err := l.locker.contender(path)
	return func(ctx context.Context) (held, error) {
		h, err := acquire(ctx)
		if err == nil {
			_, _ = l.conn.Create(path+"/leak", nil, zk.FlagEphemeral, zk.WorldACL(zk.PermAll))
		}
		return h, err
	}, err
}

func (l leakyLocker) Close() error {
	l.conn.Close()
	return l.locker.Close()
}

// lostHeld is a hold that is lost before the section ends.
type lostHeld struct{ brokenHeld }

func (lostHeld) Err() error     { return tier.ErrLost }
func (lostHeld) Release() error { return tier.ErrLost }

func TestSectionOfALostHoldIsNotCounted(t *testing.T) {
	w := newTestWorker(t)
	acquire := func(context.Context) (held, error) { return lostHeld{}, nil }
	if err := w.turn(t.Context(), acquire, 0); err != nil {
		t.Errorf("turn: %v, want nothing beyond the loss", err)
	}
	r := w.report(0, 0)
	if r.Lost != 1 || r.Sections[0] != 0 || w.registers[0].counted() != 0 {
		t.Errorf("got lost %d, reported %d, counted %d, want 1, 0, 0", r.Lost, r.Sections[0], w.registers[0].counted())
	}
}

func TestTurnAfterTheEndDoesNotEnter(t *testing.T) {
	w := newTestWorker(t)
	ctx, cancel := context.WithCancel(t.Context())
	acquire := func(context.Context) (held, error) {
		cancel()
		return brokenHeld{}, nil
	}
	if err := w.turn(ctx, acquire, 0); err != nil {
		t.Error(err)
	}
	if n := w.registers[0].counted(); n != 0 {
		t.Errorf("counted %d sections, want 0", n)
	}
	if r := w.report(0, 0); r.Late != 1 {
		t.Errorf("late turns: got %d, want 1", r.Late)
	}
}

func TestErrorsAreCountedByTheirRoot(t *testing.T) {
	w := newTestWorker(t)
	root := errors.New("root")
	for _, path := range []string{"/a", "/b"} {
		w.fail(fmt.Errorf("%s: %w", path, errors.Join(root, errors.New("other"))))
	}
	if n := w.report(0, 0).Errors["root"]; n != 2 {
		t.Errorf("got %v, want the root twice", w.found.Errors)
	}
}

func newTestWorker(t *testing.T) *worker {
	t.Helper()
	w, err := newWorker(task{Config: Config{Lock: "broken"}, Process: 1, LockPaths: []string{"/x"}, Dir: t.TempDir()})
	if err != nil {
		t.Fatal(err)
	}
	return w
}

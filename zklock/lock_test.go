package zklock_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/tierlock/tierlock/internal/zkserver"
	"github.com/tierlock/tierlock/internal/zkserver/zkservertest"
	"github.com/tierlock/tierlock/zklock"
)

func TestSmoke(t *testing.T) {
	srv := zkservertest.Start(t, zkserver.Config{TickTime: 200 * time.Millisecond, NoSync: true})
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	defer cancel()
	a, err := zklock.Dial(ctx, []string{srv.Addr()}, zklock.WithSessionTimeout(2*time.Second))
	if err != nil {
		t.Fatal(err)
	}
	defer a.Close()
	b, err := zklock.Dial(ctx, []string{srv.Addr()}, zklock.WithSessionTimeout(2*time.Second))
	if err != nil {
		t.Fatal(err)
	}
	defer b.Close()
	la, _ := a.Lock("/locks/x")
	lb, _ := b.Lock("/locks/x")
	n, err := la.Acquire(ctx)
	if err != nil {
		t.Fatal(err)
	}
	t.Log(n.Path(), n.Token())
	if _, err := lb.TryAcquire(ctx); !errors.Is(err, zklock.ErrLocked) {
		t.Fatal(err)
	}
	got := make(chan *zklock.Node)
	go func() {
		m, err := lb.Acquire(ctx)
		if err != nil {
			t.Error(err)
		}
		got <- m
	}()
	for {
		q, err := la.Contenders(ctx)
		if err != nil {
			t.Fatal(err)
		}
		if len(q) == 2 {
			t.Logf("%+v", q)
			break
		}
	}
	next := make(chan *zklock.Node)
	go func() {
		m, err := n.Requeue(ctx)
		if err != nil {
			t.Error(err)
		}
		next <- m
	}()
	m := <-got
	t.Log(m.Token())
	start := time.Now()
	if err := m.Release(); err != nil {
		t.Fatal(err)
	}
	n = <-next
	t.Log(n.Token(), time.Since(start))
	if err := n.Release(); err != nil {
		t.Fatal(err)
	}
	if err := n.Release(); !errors.Is(err, zklock.ErrReleased) {
		t.Fatal(err)
	}
	start = time.Now()
	for range 200 {
		n, err := la.Acquire(ctx)
		if err != nil {
			t.Fatal(err)
		}
		n.Release()
	}
	t.Log(time.Since(start) / 200)
}

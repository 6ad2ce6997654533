package zklock_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/go-zookeeper/zk"

	"github.com/tierlock/tierlock/zklock"
	"github.com/tierlock/tierlock/zktest"
)

// Paths are those of locks and of Multi, whatever the path in the connect string.
func TestReadsAreBelowTheConnectString(t *testing.T) {
	bubble(t, func(t *testing.T, s *zktest.Server) {
		conn := raw(t, s)
		put(t, conn, 0, "/app", "/app/locks", "/app/locks/x")
		if _, err := conn.Set("/app/locks/x", []byte("data"), -1); err != nil {
			t.Fatal(err)
		}
		client, err := zklock.Dial(t.Context(), addr+"/app", zklock.WithDialContext(s.DialContext))
		if err != nil {
			t.Fatal(err)
		}
		defer client.Close()
		data, stat, err := client.Get(t.Context(), "/locks/x")
		if err != nil || string(data) != "data" || stat.Version != 1 {
			t.Errorf("got %q, %+v, %v", data, stat, err)
		}
		for path, want := range map[string]string{"/": "locks", "/locks": "x"} {
			names, stat, err := client.Children(t.Context(), path)
			if err != nil || len(names) != 1 || names[0] != want || stat.NumChildren != 1 {
				t.Errorf("%s: got %q, %+v, %v", path, names, stat, err)
			}
		}
		_, _, err = client.Get(t.Context(), "/app")
		wantErr(t, "a path that is only in the connect string", err, zk.ErrNoNode)
		_, _, err = client.Get(t.Context(), "")
		wantErr(t, "no path", err, zk.ErrInvalidPath)
	})
}

func TestReadsWaitForAServerAndEndWithTheirContext(t *testing.T) {
	bubble(t, func(t *testing.T, s *zktest.Server) {
		p := start(t, s)
		s.Cut(p.session)
		if _, _, err := p.Get(t.Context(), "/"); err != nil {
			t.Errorf("after a reconnect: %v", err)
		}
		s.Intercept(func(f *zktest.Frame) zktest.Action {
			if f.Op == zktest.OpGetChildren2 && f.Stage == zktest.Request {
				return zktest.Drop
			}
			return zktest.Pass
		})
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		if _, _, err := p.Children(ctx, "/"); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("without an answer: %v", err)
		}
	})
	bubble(t, func(t *testing.T, s *zktest.Server) {
		p := start(t, s)
		p.Close()
		_, _, err := p.Get(t.Context(), "/")
		wantErr(t, "closed", err, zklock.ErrClosed)
	})
}

func TestParseQueueJoinsPairsAndTellsStrangersApart(t *testing.T) {
	const id = "_c_00000000-0000-8000-8000-000000000000-"
	queue, others := zklock.ParseQueue([]string{
		"config", id + "__lock__0000000004", id + "lock-0000000003", "a__lock__0000000001", "lock-0000000009", id + "__lock__0000000007",
	})
	if len(others) != 1 || others[0] != "config" {
		t.Errorf("others: %q", others)
	}
	want := []zklock.Contender{
		{Node: "a__lock__0000000001", Kind: zklock.KindKazoo, Sequence: 1},
		{Node: id + "lock-0000000003", Pair: id + "__lock__0000000004", Kind: zklock.KindTierlock, Sequence: 3},
		{Node: id + "__lock__0000000007", Kind: zklock.KindKazoo, Sequence: 7},
		{Node: "lock-0000000009", Kind: zklock.KindMutex, Sequence: 9},
	}
	if len(queue) != len(want) {
		t.Fatalf("got %+v", queue)
	}
	for i, w := range want {
		if got := queue[i]; got.Node != w.Node || got.Pair != w.Pair || got.Kind != w.Kind || got.Sequence != w.Sequence {
			t.Errorf("%d: got %+v, want %+v", i, got, w)
		}
	}
}

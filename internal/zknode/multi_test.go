package zknode_test

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"net"
	"slices"
	"testing"
	"time"

	"github.com/go-zookeeper/zk"

	"github.com/tierlock/tierlock/internal/second"
	"github.com/tierlock/tierlock/internal/test/need"
	"github.com/tierlock/tierlock/internal/zknode"
	"github.com/tierlock/tierlock/zklock/zktest"
)

func write(path string) any {
	return &zk.CreateRequest{Path: path, Data: []byte("data"), Acl: zk.WorldACL(zk.PermAll)}
}

func TestMultiOfAHolderWhoKnowsSendsNothing(t *testing.T) {
	bubble(t, func(t *testing.T, s *zktest.Server) {
		p := start(t, s)
		released, lost := p.acquire(t), p.queue(t.Context())
		released.Release()
		remove(t, raw(t, s), lost.granted(t).Path())
		awaitLoss(t, lost.node)
		time.Sleep(time.Second)
		tr := record(s)
		wantErr(t, "Multi after Release", need.ErrOf(released.Multi(t.Context(), write("/a"))), second.ErrReleased)
		wantErr(t, "Multi after the loss", need.ErrOf(lost.node.Multi(t.Context(), write("/a"))), second.ErrLost)
		need.That(t, "a write was sent", !slices.Contains(tr.take(), "multi"))
	})
}

func TestMultiThatIsRefusedHasItsOwnErrorAndWritesNothing(t *testing.T) {
	type row struct {
		ops  []any
		fate zktest.Action // what happens to the transaction
		code byte          // replaces the error code of a node that exists, if not 0
		want error         // nil: any error that is none of those in the other rows
	}
	each(t, map[string]row{
		"no node":    {ops: []any{&zk.SetDataRequest{Path: "/missing", Version: -1}}, want: zk.ErrNoNode},
		"exists":     {ops: []any{write("/locks")}, want: zk.ErrNodeExists},
		"no name":    {ops: []any{write("/locks")}, code: 1}, // a code that only a later server might send
		"throttled":  {fate: zktest.Throttled},
		"no such op": {ops: []any{7}},
		"no op":      {ops: []any{(*zk.DeleteRequest)(nil)}, want: zk.ErrUnhandledFieldType}, // the error of the client library
	}, func(t *testing.T, s *zktest.Server, c row) {
		n := start(t, s, zknode.WithDialContext(func(ctx context.Context, network, address string) (net.Conn, error) {
			conn, err := s.DialContext(ctx, network, address)
			return recoding{conn, []byte{255, 255, 255, 256 - 110}, []byte{255, 255, 255, cmp.Or(c.code, 256-110)}}, err
		})).acquire(t)
		meet(s, is("multi", zktest.Request), c.fate)
		_, err := n.Multi(t.Context(), append([]any{write("/a")}, c.ops...)...)
		if err == nil || errors.Is(err, second.ErrUnknown) || errors.Is(err, second.ErrLost) || c.want != nil && !errors.Is(err, c.want) {
			t.Errorf("got %v, want its own error, %v", err, c.want)
		}
		need.That(t, "written in part", !s.Exists("/a"))
		s.Intercept(nil)
		wantErr(t, "Release after a failed write", n.Release(), nil)
	})
}

// A recoding connection replaces the bytes sent in what the server has sent by the bytes brought. Both have the same length.
type recoding struct {
	net.Conn
	sent, brought []byte
}

func (c recoding) Read(p []byte) (int, error) {
	n, err := c.Conn.Read(p)
	copy(p, bytes.ReplaceAll(p[:n], c.sent, c.brought))
	return n, err
}

// In this test, the answer ends where the result of the check should begin.
func TestMultiWithFewerResultsThanOperationsIsUnknown(t *testing.T) {
	bubble(t, func(t *testing.T, s *zktest.Server) {
		n := start(t, s, zknode.WithDialContext(func(ctx context.Context, network, address string) (net.Conn, error) {
			conn, err := s.DialContext(ctx, network, address)
			return recoding{conn, []byte{0, 0, 0, 13, 0, 0, 0, 0, 0}, []byte{255, 255, 255, 255, 1, 255, 255, 255, 255}}, err
		})).acquire(t)
		wantErr(t, "Multi", need.ErrOf(n.Multi(t.Context(), write("/a"))), second.ErrUnknown)
	})
}

func TestMultiWithoutAnAnswerIsUnknown(t *testing.T) {
	type row struct {
		stage zktest.Direction // where the connection breaks; 0: the server does not answer
		there bool             // the write was executed
		want  error
	}
	each(t, map[string]row{
		"the request is lost": {zktest.Request, false, zk.ErrConnectionClosed},
		"the answer is lost":  {zktest.Reply, true, zk.ErrConnectionClosed},
		"none comes in time":  {0, false, context.DeadlineExceeded},
	}, func(t *testing.T, s *zktest.Server, c row) {
		n := start(t, s).acquire(t)
		meet(s, func(f *zktest.Frame) bool { return f.Dir == c.stage && f.Op == "multi" }, zktest.Cut)
		if c.stage == 0 {
			s.Freeze()
			defer s.Unfreeze()
		}
		_, err := n.Multi(within(t, time.Second), write("/a"))
		wantErr(t, "Multi", err, second.ErrUnknown, c.want)
		need.That(t, "an unknown outcome is reported as a loss", !errors.Is(err, second.ErrLost))
		need.Equal(t, "written", s.Exists("/a"), c.there)
	})
}

// A write that is refused before it was sent does not count as a write in progress.
func TestMultiThatIsNotSentIsNotWriting(t *testing.T) {
	refusal := errors.New("no more")
	type row struct {
		check  error
		ended  bool // the context has ended
		closes bool // the client is closed in the meantime
		want   error
	}
	each(t, map[string]row{
		"refused by its user": {check: refusal, want: refusal},
		"an ended context":    {ended: true, want: context.Canceled},
		"a closed client":     {closes: true, want: second.ErrClosed},
	}, func(t *testing.T, s *zktest.Server, c row) {
		p := start(t, s)
		n := p.acquire(t)
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		if c.ended {
			cancel()
		}
		tr := record(s)
		_, err := n.MultiIf(ctx, func() error {
			if c.closes {
				p.Close()
			}
			return c.check
		}, write("/a"))
		wantErr(t, "MultiIf", err, c.want)
		got := tr.take()
		need.That(t, fmt.Sprintf("sent: %v; writing: %t", got, n.Writing()), (len(got) == 0 || c.closes) && !n.Writing())
	})
}

// To end a hold, a caller first invalidates it, and then waits for writes in progress. Therefore a multi has to count as a write in
// progress before it checks the hold for the last time.
func TestMultiIsWritingBeforeItsUserIsAskedForTheLastTime(t *testing.T) {
	bubble(t, func(t *testing.T, s *zktest.Server) {
		n := start(t, s).acquire(t)
		writing := false
		_, err := n.MultiIf(t.Context(), func() error {
			writing = n.Writing()
			return nil
		}, write("/a"))
		wantErr(t, "MultiIf", err, nil)
		need.Equal(t, "whether it writes when asked, and in the end", [2]bool{writing, n.Writing()}, [2]bool{true, false})
	})
}

package link

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"maps"
	"math"
	"net"
	"slices"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-zookeeper/zk"

	"github.com/tierlock/tierlock/internal/second"
	"github.com/tierlock/tierlock/internal/test/need"
	"github.com/tierlock/tierlock/internal/wire"
	"github.com/tierlock/tierlock/zklock/zktest"
)

// A replay is a connection that delivers the same frame again and again.
type replay struct {
	net.Conn
	frame, rest []byte
}

func (r *replay) Read(p []byte) (int, error) {
	if len(r.rest) == 0 {
		r.rest = r.frame
	}
	n := copy(p, r.rest)
	r.rest = r.rest[n:]
	return n, nil
}

func newDialed() *dialed {
	l := New(Config{Settings: second.Settings{TTL: timeout, Logger: slog.New(slog.DiscardHandler)}})
	d := &dialed{link: l}
	l.transport = d
	return d
}

// replySocket returns a function read for a socket on which replies to op arrive. read requests a reply, reads it as the library does, and
// returns it.
func replySocket(op int32, body []byte) (read func() ([]byte, error)) {
	l := newDialed()
	var reply wire.Encoder
	reply.ReplyHeader(wire.ReplyHeader{Xid: 7, Zxid: 1})
	answer := wire.Frame(append(reply, body...))
	s := newSocket(&replay{frame: answer}, "server", l)
	s.session = newSession(l.link, 1, 6*time.Second, 0, 4*time.Second, func() bool { return true })
	buf := make([]byte, len(answer))
	return func() ([]byte, error) {
		s.noteLocked(wire.RequestHeader{Xid: 7, Op: op}, l.link.Now(), nil, false)
		for rest := buf; len(rest) > 0; {
			n, err := s.Read(rest[:max(min(len(rest), 4), len(rest)-4)])
			if err != nil {
				return nil, err
			}
			rest = rest[n:]
		}
		return buf, nil
	}
}

func childrenReply(n int) []byte {
	var e wire.Encoder
	names := make([]string, n)
	for i := range names {
		names[i] = fmt.Sprintf("_c_00000000-0000-8000-8000-000000000000-lock-%010d", i)
	}
	e.Strings(names)
	return append(e, make([]byte, wire.StatSize)...)
}

func TestReadingAReplyAllocatesNothing(t *testing.T) {
	read := replySocket(wire.OpGetChildren2, childrenReply(100))
	if n := testing.AllocsPerRun(1000, func() {
		if _, err := read(); err != nil {
			t.Fatal(err)
		}
	}); n > 0 {
		t.Errorf("%v allocations for a reply", n)
	}
}

// At ten thousand requests per second, the range of xids is used up after two and a half days. It then starts again.
func TestXidsOfBatchesBeginAnewAtTheEndOfTheirRange(t *testing.T) {
	s := newSocket(&replay{}, "server", newDialed())
	s.lastXid = math.MinInt32 + 1
	s.encode(newBatch([]Request{List("/x"), List("/x"), List("/x")}))
	got := slices.Sorted(maps.Keys(s.sent))
	need.List(t, "xids", got, math.MinInt32, firstXid-1, firstXid)
}

// Some replies, such as the reply to credentials, have no zxid. They must not reset the highest zxid that was seen.
func TestWhatWasSeenStaysSeen(t *testing.T) {
	d := newDialed()
	s := newSocket(&replay{}, "server", d)
	for _, zxid := range []int64{3, 7, 0, -1} {
		_, _, _, err := s.noteAnswer(wire.ReplyHeader{Xid: -4, Zxid: zxid}, wire.Decoder{})
		need.OK(t, err)
	}
	need.Equal(t, "seen up to", d.seen.Load(), 7)
}

func TestConnectionThatIsMadeAfterTheEndIsKilled(t *testing.T) {
	bubble(t, func(t *testing.T, s *zktest.Server) {
		l := dial(t, to(s), addr)
		shut(l)
		late, far := net.Pipe()
		l.config.Dial = func(context.Context, string, string) (net.Conn, error) { return late, nil } // this dialer ignores the end of its context
		wantErr(t, "dial", need.ErrOf(l.transport.(*dialed).dial("tcp", addr, time.Second)), second.ErrClosed)
		far.SetDeadline(time.Now().Add(time.Second))
		wantErr(t, "at the other end", need.ErrOf(far.Read(make([]byte, 1))), io.EOF)
	})
}

// A connection that is not TCP may have no buffer, and then a handshake blocks if the server reads nothing. The client leaves such a
// server.
func TestServerThatReadsNothingIsLeft(t *testing.T) {
	bubble(t, func(t *testing.T, s *zktest.Server) {
		c, deaf := to(s), true
		c.Dial = func(ctx context.Context, network, address string) (net.Conn, error) {
			if deaf {
				deaf = false
				near, far := net.Pipe()
				t.Cleanup(func() { far.Close() })
				return near, nil
			}
			return s.DialContext(ctx, network, address)
		}
		begun := time.Now()
		dial(t, c, addr)
		need.AtMost(t, "until there was a session, with a pause", time.Since(begun), timeout/6+time.Second)
	})
}

// A deaf is a connection that accepts no more data when the field now is set.
type deaf struct {
	net.Conn
	now *atomic.Bool
}

func (d deaf) Write(p []byte) (int, error) {
	if d.now.Load() {
		return 0, errors.New("it does not listen")
	}
	return d.Conn.Write(p)
}

// If a connection ends because a write has failed, the reported reason is the error of that write.
func TestWhyAWriteFailedIsTold(t *testing.T) {
	bubble(t, func(t *testing.T, s *zktest.Server) {
		c, now := to(s), new(atomic.Bool)
		c.Dial = func(ctx context.Context, network, address string) (net.Conn, error) {
			if now.Load() {
				<-ctx.Done()
				return nil, ctx.Err()
			}
			conn, err := s.DialContext(ctx, network, address)
			return deaf{conn, now}, err
		}
		l := dial(t, c, addr)
		now.Store(true)
		wantErr(t, "Ask", l.Ask(List("/"))[0].Err, zk.ErrConnectionClosed)
		synctest.Wait()
		wantMention(t, l.Err(), "write to "+addr+": it does not listen")
	})
}

// An answer may have been read together with the data before it, when the connection has already ended. By then, all callers have got the
// error that no more answers come. The late answer must not count.
func TestAnswerBehindTheEndOfAConnectionIsNotBelieved(t *testing.T) {
	s := newSocket(&replay{}, "server", newDialed())
	s.session = newSession(s.dialed.link, 1, timeout, 0, timeout, func() bool { return true })
	s.encode(newBatch([]Request{List("/x")}))
	s.end()
	var reply wire.Encoder
	reply.ReplyHeader(wire.ReplyHeader{Xid: s.lastXid, Zxid: 1})
	_, err := s.noteReply(wire.Frame(append(reply, childrenReply(1)...)))
	wantMention(t, err, "which was never sent")
}

// A session may be stored just after Close has looked for one. It must not live on.
func TestSessionOfALinkThatHasEndedIsOver(t *testing.T) {
	d := newDialed()
	d.link.End()
	s := need.Get(d.established(1, timeout, 0))(t)
	need.That(t, "it goes on", s.Over())
}

func TestSessionThatLeavesNoRoomForTheMarginIsRefused(t *testing.T) {
	d := newDialed()
	d.link.config.Margin = timeout / 2
	need.OK(t, need.ErrOf(d.established(1, timeout, 0)))
	wantMention(t, need.ErrOf(d.established(2, timeout-1, 0)), "is more than half of it")
}

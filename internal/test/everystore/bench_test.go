//go:build unix

package everystore

import (
	"bufio"
	"context"
	"fmt"
	"math/rand/v2"
	"net"
	"slices"
	"sync/atomic"
	"testing"
	"time"

	"github.com/tierlock/tierlock/internal/queue"
	"github.com/tierlock/tierlock/internal/test/child/childtest"
	"github.com/tierlock/tierlock/internal/test/etcdserver"
	"github.com/tierlock/tierlock/internal/test/need"
	"github.com/tierlock/tierlock/internal/test/pgserver"
	"github.com/tierlock/tierlock/internal/test/redisserver"
	"github.com/tierlock/tierlock/internal/test/waittest"
	"github.com/tierlock/tierlock/internal/test/zkserver"
	"github.com/tierlock/tierlock/internal/wire"
	"github.com/tierlock/tierlock/pglock"
	"github.com/tierlock/tierlock/redislock"
	"github.com/tierlock/tierlock/tier"
)

// Two hundred goroutines of one process acquire a thousand locks at random. For comparison, the benchmark sends the bare requests of such
// acquisitions to the store, without the library. The locks must not cost much more than these. The servers sync their logs.
func BenchmarkManyLocks(b *testing.B) {
	for _, s := range []struct {
		name    string
		connect connect
		start   func(b *testing.B) (addr string)
	}{
		{"etcd", etcd, func(b *testing.B) string { return childtest.Start(b, etcdserver.Start, etcdserver.Config{}).Addr() }},
		{"Redis", redisNew, func(b *testing.B) string { return childtest.Start(b, redisserver.Start, redisserver.Config{}).Addr() }},
		{"PostgreSQL", postgres(pglock.New), func(b *testing.B) string {
			addr := childtest.Start(b, pgserver.Start, pgserver.Config{}).Addr()
			operator := need.Get(pool(b, addr))(b)
			need.OK(b, pglock.Migrate(b.Context(), operator))
			return addr
		}},
	} {
		b.Run(s.name, func(b *testing.B) {
			var session atomic.Value
			queue.Recorder = func(r queue.Record) {
				if r.Command.Op == queue.Open && r.Answer.Outcome == queue.Done {
					session.Store(r.Answer.Name)
				}
			}
			locks := need.Get(s.connect(b, s.start(b)))(b)
			defer locks.Close()
			hold := need.Get(locks.Mutex("/first").Acquire(b.Context()))(b)
			store := waittest.Grant(hold).(*queue.Contender).Store()
			need.OK(b, hold.Release())
			turns(b, "locks", 1, locking(locks))
			turns(b, "requests", 1, func(ctx context.Context, paths []string) error {
				c := queue.Command{Op: queue.Enter, Session: session.Load().(string)}
				c.Path, c.ID = paths[0], store.Name(c.Session)
				a := store.Do(ctx, c)
				if a.Outcome == queue.Done {
					c.Op, c.Token = queue.Leave, a.View.Token
					a = store.Do(ctx, c)
				}
				return a.Err
			})
		})
	}
}

// On ZooKeeper, requests that cannot be sent at once are collected and then sent together, as one group. For comparison, the benchmark
// sends groups of bare requests. Their size is fixed, and as many acquisitions are under way as with locks. The bare requests keep no
// promises: the benchmark does not read the lists, and the first error ends it.
func BenchmarkManyLocksOnZooKeeper(b *testing.B) {
	addr := childtest.Start(b, zkserver.Start, zkserver.Config{TickTime: 2 * time.Second}).Addr()
	locks := need.Get(zooKeeper(b, addr))(b)
	defer locks.Close()
	for i := range keys {
		need.OK(b, locks.Mutex(key(i)).Do(b.Context(), func(context.Context) error { return nil }))
	}
	warming := dialRaw(b, addr)
	for range 2000 { // the first requests are left out, because they would measure Java's compiler
		need.OK(b, warming.turns(slices.Repeat([]string{key(0)}, 64)))
	}
	turns(b, "locks", 1, locking(locks))
	for _, size := range []int{16, 64} {
		connections := make(chan *rawConn, underWay/size+1)
		for range cap(connections) {
			connections <- dialRaw(b, addr)
		}
		turns(b, fmt.Sprintf("groups of %d", size), size, func(_ context.Context, paths []string) error {
			c := <-connections
			defer func() { connections <- c }()
			return c.turns(paths)
		})
	}
}

const (
	keys     = 1000
	underWay = 200 // acquisitions that are under way at a time
)

func key(i int) string { return fmt.Sprint("/many/", i) }

func locking(locks *tier.Registry) func(context.Context, []string) error {
	return func(ctx context.Context, paths []string) error {
		return locks.Mutex(paths[0]).Do(ctx, func(context.Context) error { return nil })
	}
}

// The function turns takes locks in groups of the given size, again and again.
func turns(b *testing.B, name string, size int, take func(ctx context.Context, paths []string) error) {
	b.Run(name, func(b *testing.B) {
		b.SetParallelism((underWay/size + 1) / 2) // goroutines for each of two cores
		b.RunParallel(func(pb *testing.PB) {
			for paths := []string{}; ; paths = paths[:0] {
				first := rand.IntN(keys)
				for len(paths) < size && pb.Next() {
					paths = append(paths, key((first+len(paths)*61)%keys)) // each path of a group is a different one
				}
				if len(paths) == 0 {
					return
				}
				need.OK(b, take(b.Context(), paths))
			}
		})
		b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "turns/s")
	})
}

// A rawConn is a session of ZooKeeper for bare requests.
type rawConn struct {
	net.Conn
	answers *bufio.Reader
}

func dialRaw(b *testing.B, addr string) *rawConn {
	conn := need.Get(net.Dial("tcp", addr))(b)
	b.Cleanup(func() { conn.Close() })
	var e wire.Encoder
	e.ConnectRequest(wire.ConnectRequest{Timeout: 30 * time.Second, Password: make([]byte, 16)})
	need.Get(conn.Write(wire.Frame(e)))(b)
	c := &rawConn{conn, bufio.NewReader(conn)}
	need.Get(wire.ReadFrame(c.answers, nil, 1<<20))(b)
	return c
}

// The method turns creates a node below each path, lists the children of each path, and deletes the nodes.
func (c *rawConn) turns(paths []string) error {
	var creates, lists, deletes wire.Encoder
	for _, path := range paths {
		creates.MultiHeader(wire.MultiHeader{Op: wire.OpCreate, Code: -1})
		creates.String(path + "/_c_12345678-1234-8123-8123-123456789abc-lock-")
		creates.Buffer(make([]byte, 150))
		creates.Int32(1) // number of entries in the ACL
		creates.Int32(31)
		creates.String("world")
		creates.String("anyone")
		creates.Int32(3) // ephemeral and sequential
		lists.MultiHeader(wire.MultiHeader{Op: wire.OpGetChildren, Code: -1})
		lists.String(path)
		lists.Bool(false)
	}
	created, err := c.ask(wire.OpMulti, creates, wire.OpMultiRead, lists)
	for range paths {
		if err == nil {
			err = wire.CodeError(created.MultiHeader().Code)
		}
		deletes.MultiHeader(wire.MultiHeader{Op: wire.OpDelete, Code: -1})
		deletes.String(created.String())
		deletes.Int32(-1)
	}
	if err == nil {
		_, err = c.ask(wire.OpMulti, deletes, 0, nil)
	}
	return err
}

// The method ask sends one request, or two requests at once. It returns the answer to the first.
func (c *rawConn) ask(op int32, body wire.Encoder, behind int32, other wire.Encoder) (*wire.Decoder, error) {
	frames := c.frame(op, body)
	if other != nil {
		frames = append(frames, c.frame(behind, other)...)
	}
	if _, err := c.Write(frames); err != nil {
		return nil, err
	}
	first, err := c.answer()
	if err == nil && other != nil {
		_, err = c.answer()
	}
	return first, err
}

func (c *rawConn) frame(op int32, body wire.Encoder) []byte {
	var e wire.Encoder
	e.RequestHeader(wire.RequestHeader{Xid: 1, Op: op})
	e = append(e, body...)
	e.MultiHeader(wire.LastOfMulti)
	return wire.Frame(e)
}

func (c *rawConn) answer() (*wire.Decoder, error) {
	frame, err := wire.ReadFrame(c.answers, nil, 1<<20)
	if err != nil {
		return nil, err
	}
	d := &wire.Decoder{Rest: wire.Body(frame)}
	return d, wire.CodeError(d.ReplyHeader().Code)
}

func redisNew(t testing.TB, addr string) (*tier.Registry, error) {
	return redisAt(t, addr, redislock.WithNewServer())
}

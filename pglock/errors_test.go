package pglock

import (
	"context"
	"fmt"
	"math"
	"net"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgproto3"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/tierlock/tierlock/internal/queue"
	"github.com/tierlock/tierlock/internal/test/need"
	"github.com/tierlock/tierlock/internal/test/waittest"
	"github.com/tierlock/tierlock/tier"
)

// If the driver cannot encode a value, nothing was sent. That is an error of the caller and no outage, and the request is not repeated.
func TestValueThatCannotBeEncodedIsTheCallersError(t *testing.T) {
	t.Parallel()
	_, err := outside(t).Exec(soon(t), "SELECT $1::int", int64(math.MaxInt64))
	need.That(t, fmt.Sprintf("classified as %v, answered %v: %v", classify(err), answered(err), err),
		classify(err) == queue.Denied && answered(err))
}

// A stuck transaction has locked the queue. The server still answers, and the error names the transaction that blocks the request.
func TestStuckTransactionIsNoOutage(t *testing.T) {
	t.Parallel()
	p := start(t, tier.WithLeaseTTL(2*ttl))
	stuck := begun(t, outside(t))
	ask[any](t, stuck, "SELECT pg_advisory_xact_lock(tierlock.key($1))::text", lockPath(t))
	w := waittest.Begin(t, p.at(t, lockPath(t)).Acquire)
	c := must(t, p.at(t, lockPath(t)+"-2"))
	a := c.Store().Do(soon(t), queue.Command{Op: queue.Leave, Ref: queue.Ref{Path: lockPath(t), ID: newID()}})
	need.That(t, fmt.Sprintf("%+v", a), a.Outcome == queue.Failed && a.Away == nil && refusal(a.Err) == "55P03")
	need.OK(t, p.Err())
	mustRelease(t, c)
	stuck.Rollback(soon(t))
	mustRelease(t, w.Must(t))
}

// If all connections for requests are busy, that is no outage. In an outage, all of these connections would be closed.
func TestBusyConnectionsAreNoOutage(t *testing.T) {
	t.Parallel()
	p := start(t, tier.WithLeaseTTL(unhurried))
	s := must(t, p.at(t, lockPath(t)+"-2")).Store()
	stuck := begun(t, outside(t))
	ask[any](t, stuck, "SELECT pg_advisory_xact_lock(tierlock.key($1))::text", lockPath(t))
	leave := func(ctx context.Context) queue.Answer {
		return s.Do(ctx, queue.Command{Op: queue.Leave, Ref: queue.Ref{Path: lockPath(t), ID: newID()}})
	}
	answers := make(chan queue.Answer, maxRequests)
	for range maxRequests {
		go func() { answers <- leave(soon(t)) }()
	}
	eventually(t, "requests that wait for the stuck transaction", func() bool {
		return ask[int](t, outside(t), "SELECT count(*) FROM pg_locks WHERE NOT granted AND "+ofLock+"::text::bigint",
			ask[string](t, outside(t), "SELECT tierlock.key($1)::text", lockPath(t))) == maxRequests
	})
	a := leave(need.Within(t, 100*time.Millisecond))
	need.That(t, fmt.Sprintf("%+v", a), a.Outcome == queue.Failed && a.Away == nil)
	wantErr(t, a.Err, errBusy)
	stuck.Rollback(soon(t))
	for range maxRequests {
		a := <-answers
		need.That(t, fmt.Sprintf("a request that was under way: %+v", a), a.Outcome == queue.Done)
	}
}

// During an outage, the error names the servers. Otherwise the person on call would not know which server to look at.
func TestOutageNamesTheServers(t *testing.T) {
	forEach(t, func(t *testing.T, f flavour) {
		p := f.start(t, sharedURL(t))
		t.Cleanup(p.network.sever())
		p.network.reset()
		eventually(t, "an error that names the server", func() bool {
			err := p.Err()
			return err != nil && strings.Contains(err.Error(), "PostgreSQL at "+server(t).Addr()+" cannot be reached")
		})
	})
}

// On these systems, advisory locks do not exclude other sessions. Both kinds of locks, and Migrate, therefore refuse to work there.
func TestOtherServersAreRefusedByName(t *testing.T) {
	t.Parallel()
	for version, system := range map[string]string{
		"CockroachDB CCL v23.2.4 (x86_64-pc-linux-gnu)":                    "CockroachDB",
		"PostgreSQL 11.2-YB-2.20.1.3-b0 on x86_64-pc-linux-gnu":            "YugabyteDB",
		"PostgreSQL 15.2-YB-2.25.0.0-b0 on x86_64-pc-linux-gnu":            "YugabyteDB",
		"PostgreSQL 15.14 (Debian 15.14-0+deb12u1) on x86_64-pc-linux-gnu": "",
		"EnterpriseDB 17.2 on x86_64-pc-linux-gnu":                         "",
	} {
		if system == "" {
			need.OK(t, checkVersion(version))
			continue
		}
		pool := poolAt(t, "postgres://app@db/app?sslmode=disable", func(c *pgxpool.Config) {
			c.ConnConfig.LookupFunc = func(context.Context, string) ([]string, error) { return []string{"192.0.2.1"}, nil }
			c.ConnConfig.DialFunc = func(context.Context, string, string) (net.Conn, error) {
				near, far := net.Pipe()
				go answerVersion(far, version)
				return near, nil
			}
		})
		for _, f := range flavours {
			_, err := f.front(soon(t), pool)
			need.WantErr(t, f.name, err, errServer)
			need.WantMention(t, err, system)
		}
		wantErr(t, Migrate(soon(t), pool), errServer)
	}
}

// answerVersion serves a connection as a server that answers each query with its version.
func answerVersion(conn net.Conn, version string) {
	defer conn.Close()
	server := pgproto3.NewBackend(conn, conn)
	say := func(messages ...pgproto3.BackendMessage) {
		for _, m := range append(messages, &pgproto3.ReadyForQuery{TxStatus: idle}) {
			server.Send(m)
		}
		server.Flush()
	}
	if _, err := server.ReceiveStartupMessage(); err != nil {
		return
	}
	say(&pgproto3.AuthenticationOk{}, &pgproto3.BackendKeyData{ProcessID: 1, SecretKey: []byte("0000")})
	for {
		m, err := server.Receive()
		if err != nil {
			return
		}
		switch m.(type) {
		case *pgproto3.Query: // an empty query, with which a pool checks a connection that was idle for a second
			say(&pgproto3.EmptyQueryResponse{})
		case *pgproto3.Sync:
			say(&pgproto3.ParseComplete{}, &pgproto3.BindComplete{},
				&pgproto3.RowDescription{Fields: []pgproto3.FieldDescription{{Name: []byte("version"), DataTypeOID: 25, DataTypeSize: -1}}},
				&pgproto3.DataRow{Values: [][]byte{[]byte(version)}}, &pgproto3.CommandComplete{CommandTag: []byte("SELECT 1")})
		}
	}
}

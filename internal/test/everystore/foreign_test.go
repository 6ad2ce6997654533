//go:build unix

package everystore

import (
	"context"
	"database/sql"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"
	"unicode"
	"unicode/utf8"

	"github.com/jackc/pgx/v5"
	"github.com/redis/go-redis/v9"
	clientv3 "go.etcd.io/etcd/client/v3"
	"go.uber.org/zap"

	"github.com/tierlock/tierlock/internal/test/mysqlserver"
	"github.com/tierlock/tierlock/internal/test/need"
	"github.com/tierlock/tierlock/internal/test/pgserver"
	"github.com/tierlock/tierlock/internal/test/zkconn"
	"github.com/tierlock/tierlock/tier"
)

// A deface function replaces the texts by which a holder describes itself. It does so directly at the server, as any program with access to
// the server could.
type deface func(t *testing.T, addr, path, host, label string) error

func description(host, label string) []byte {
	text, _ := json.Marshal(map[string]any{"v": 1, "pid": 7, "host": host, "label": label})
	return text
}

func defaceZooKeeper(t *testing.T, addr, path, host, label string) error {
	conn := zkconn.Start(t, []string{addr}, 10*time.Second, nil)
	nodes, _, err := conn.Children(path)
	if err != nil {
		return err
	}
	_, err = conn.Set(path+"/"+nodes[0], description(host, label), -1)
	return err
}

func defaceEtcd(t *testing.T, addr, path, host, label string) error {
	client, err := clientv3.New(clientv3.Config{Endpoints: []string{addr}, Logger: zap.NewNop()})
	if err != nil {
		return err
	}
	defer client.Close()
	keys, err := client.Get(soon(t), path+"/", clientv3.WithPrefix(), clientv3.WithKeysOnly())
	if err != nil {
		return err
	}
	_, err = client.Put(soon(t), string(keys.Kvs[0].Key), string(description(host, label)), clientv3.WithIgnoreLease())
	return err
}

func defaceRedis(t *testing.T, addr, path, host, label string) error {
	client := redis.NewClient(&redis.Options{Addr: addr})
	defer client.Close()
	keys, err := client.Keys(soon(t), "{"+path+"}*").Result()
	if err != nil {
		return err
	}
	for _, key := range keys {
		fields, _ := client.HKeys(soon(t), key).Result()
		for _, field := range fields {
			if strings.HasPrefix(field, "c:") {
				return client.HSet(soon(t), key, field, "x-1 0 0 "+strings.ReplaceAll(host, " ", "_")+" "+label).Err()
			}
		}
	}
	return errors.New("no contender")
}

func defaceMySQL(t *testing.T, addr, path, host, label string) error {
	db := need.Get(sql.Open("mysql", mysqlserver.DSN(addr)))(t)
	defer db.Close()
	_, err := db.ExecContext(t.Context(), "UPDATE tierlock_session SET host = ?, label = ? "+
		"WHERE id IN (SELECT session FROM tierlock_contender WHERE path = ?)", host, label[:1024], path) // the column takes no more characters
	return err
}

func defacePostgres(t *testing.T, addr, path, host, label string) error {
	conn, err := pgx.Connect(t.Context(), pgserver.PlainURL(addr))
	if err != nil {
		return err
	}
	defer conn.Close(context.Background())
	_, err = conn.Exec(soon(t), `UPDATE tierlock.session SET host = $2, label = $3
		WHERE id = (SELECT session FROM tierlock.contender WHERE path = $1)`, path, host, label)
	return err
}

// Texts of other programs are shown to users as one short printable line, by Contenders and in the error of a wait.
func testForeignText(t *testing.T, s site, deface deface) {
	holder, other := s.process(t), s.process(t)
	path := pathOf(t)
	hold := need.Get(holder.Mutex(path).Acquire(soon(t)))(t)
	defer hold.Release()
	const evil = "night\n\x1b[2Jrun\r\u2028level=ERROR msg=forged\u202e\u2066\u009b31m\u0007"
	need.OK(t, deface(t, s.addr, path, evil, evil+strings.Repeat("x", 900<<10)))
	queue, err := other.Mutex(path).Contenders(soon(t))
	need.Must(t, fmt.Sprintf("contenders: %.500s, %v", fmt.Sprintf("%+v", queue), err),
		err == nil && len(queue) == 1 && strings.HasPrefix(queue[0].Label, `night\n\x1b[2Jrun\r\u2028`) && queue[0].Host != "")
	for _, text := range []string{queue[0].ID, queue[0].Host, queue[0].Label} {
		wantPlain(t, text, 1<<10)
	}
	var waited *tier.WaitError
	// The wait is repeated until it lasts long enough to see the queue.
	for limit := 300 * time.Millisecond; waited == nil || !waited.AheadHolds; limit *= 2 {
		short, cancel := context.WithTimeout(soon(t), limit)
		_, err := other.Mutex(path).Acquire(short)
		cancel()
		if waited = nil; !errors.As(err, &waited) || limit > time.Minute {
			t.Fatalf("a wait of %v: %v", limit, err)
		}
	}
	wantPlain(t, waited.Ahead.Label, 1<<10)
	wantPlain(t, waited.Error(), 4<<10)
}

func wantPlain(t *testing.T, text string, most int) {
	t.Helper()
	if len(text) > most || !utf8.ValidString(text) || strings.ContainsFunc(text, func(r rune) bool { return !unicode.IsPrint(r) }) {
		t.Errorf("%d bytes: %.500q", len(text), text)
	}
}

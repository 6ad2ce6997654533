package redislock

import (
	"context"
	_ "embed"
	"fmt"
	"time"

	"github.com/redis/go-redis/v9"
)

// A primary is what this process knows of a server, by its replication id: a server gets another one
// whenever it begins to be the primary, by its start or by being promoted. The script grants nothing
// for who does not know the id.
type primary struct {
	id    string
	until time.Duration // nothing is granted before, by the clock of the store; 0 if that is over
}

//go:embed record.lua
var recordText string

var recordScript = redis.NewScript(recordText)

// recordKeys are those of what is known of a primary. They are in one slot, whichever server has that:
// a primary has no slot that it keeps.
func recordKeys(id string) []string { return []string{records + id, records + "longest"} }

const records = "{tierlock:primary}:"

// args are those of the script for an operation. A quarantine that seems to be over is looked at once
// more, since it may have become longer.
func (s *store) args(p primary, op, id string, more ...string) []any {
	secluded := time.Duration(0)
	if p.until != 0 {
		if secluded = p.until - s.now(); secluded <= 0 {
			p.id = ""
		}
	}
	args := []any{op, micros(s.options.ttl), micros(s.quarantine()), id, p.id, micros(secluded)}
	for _, arg := range more {
		args = append(args, arg)
	}
	return args
}

// introduced reports whether an answer is that of a primary which the caller has not met.
func introduced(words []string) bool { return len(words) == 4 && words[0] == "stranger" }

// reason is why a primary that has introduced itself grants nothing.
func reason(words []string) string {
	if heir := words[3] == "1"; heir {
		return "the server was started or promoted, and first used less than a lease ago"
	}
	return "the server started less than a lease ago"
}

// meet asks the record of a primary, which has introduced itself, for how long it grants nothing.
func (s *store) meet(ctx context.Context, addr string, words []string) (primary, error) {
	if known, ok := s.primaries.Load(addr); ok { // by now, or for another lock
		if p := known.(primary); p.id == words[1] && (p.until == 0 || p.until > s.now()) {
			return p, nil
		}
	}
	p, sent := primary{id: words[1]}, time.Now()
	answer, err := eval(ctx, s.client, recordScript, recordText, recordKeys(p.id), micros(s.quarantine()), words[2]).Int64()
	if err != nil {
		return p, err
	}
	if left := time.Duration(answer) * time.Microsecond; left > 0 {
		p.until = s.now() + left
		s.notice.Quarantine(left, sent, reason(words))
	}
	s.primaries.Store(addr, p)
	return p, nil
}

// meetAt meets the primary that one is connected to.
func (s *store) meetAt(ctx context.Context, one *redis.Client) error {
	words, err := eval(ctx, one, script, text, nil, s.args(primary{}, "meet", "")...).StringSlice()
	if err == nil && !introduced(words) {
		err = fmt.Errorf("an answer of %d words", len(words))
	}
	if err == nil {
		_, err = s.meet(ctx, s.addrOf(one), words)
	}
	return err
}

// primaryOf is the primary that a key is at, as far as this process knows, and where that is.
func (s *store) primaryOf(ctx context.Context, path string) (addr string, p primary) {
	if cluster, ok := s.client.(*redis.ClusterClient); ok {
		one, err := cluster.MasterForKey(ctx, path)
		if err != nil { // the request will tell
			return "", primary{}
		}
		addr = s.addrOf(one)
	}
	if known, ok := s.primaries.Load(addr); ok {
		p = known.(primary)
	}
	return addr, p
}

// addrOf is "" for a client that has one primary at a time, wherever that is.
func (s *store) addrOf(one *redis.Client) string {
	if _, ok := s.client.(*redis.ClusterClient); ok {
		return one.Options().Addr
	}
	return ""
}

package redislock

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"os"
	"strconv"
	"time"

	"github.com/tierlock/tierlock/internal/retry"
	"github.com/tierlock/tierlock/internal/second"
)

// owner is what a contender says of its process.
type owner struct {
	Host   string    `json:"host"`
	PID    int       `json:"pid"`
	Label  string    `json:"label,omitempty"`
	Linger int64     `json:"linger_ms,omitempty"`
	Time   time.Time `json:"time"` // by the owner's clock
}

func newOwner(label string) owner {
	host, _ := os.Hostname() // only for people to read
	return owner{Host: host, PID: os.Getpid(), Label: label}
}

// describe returns what a contender says that queues now: its mode, room for the script, and the
// process.
func (l *claim) describe() string {
	o := l.store.owner
	o.Linger, o.Time = l.linger.Milliseconds(), time.Now().UTC()
	var value bytes.Buffer
	encoder := json.NewEncoder(&value)
	encoder.SetEscapeHTML(false)
	encoder.Encode(o) // strings, numbers and a time that was present: cannot fail
	mode := "x-"
	if l.mode == second.Reading {
		mode = "r-"
	}
	return mode + string(bytes.TrimSpace(value.Bytes()))
}

// owner is the zero one for a lock of another library.
func (p place) owner() (o owner) {
	if len(p.about) > 2 {
		json.Unmarshal([]byte(p.about[2:]), &o) // for people: what cannot be read is left out
	}
	return o
}

// Contenders reads the queue with one request. A lock of another library comes first, as the value
// of its key. A process meets the primary before, unless it cannot, and knows whether that grants anything.
func (l *claim) Contenders(ctx context.Context) ([]second.Contender, error) {
	scope, end := l.store.scope(ctx)
	l.store.await(scope, false)
	end()
	words, err := l.insist(ctx, "list")
	if err != nil {
		return nil, l.failure("contenders of", err)
	}
	const size = 4
	if len(words)%size != 0 {
		return nil, l.failure("contenders of", fmt.Errorf("an answer of %d words", len(words)))
	}
	var queue []second.Contender
	var has []bool
	for ; len(words) > 0; words = words[size:] {
		token, err := strconv.ParseInt(words[1], 10, 64)
		if err != nil {
			return nil, l.failure("contenders of", err)
		}
		queue = append(queue, place{words[0], token, words[2]}.describe())
		has = append(has, words[3] == "1")
	}
	if l.store.Quarantine() != nil {
		second.Quarantined(queue, func(i int) bool { return has[i] })
	}
	return queue, nil
}

// insist repeats an operation that is about no contender until it is answered, or ctx is done.
func (l *claim) insist(ctx context.Context, op string) ([]string, error) {
	ctx, end := l.store.scope(ctx)
	defer end()
	for pace := retry.New(); ; {
		words, err := l.do(ctx, op, "")
		if err == nil || classify(err) == permanent {
			return words, err
		}
		if err := retry.Pause(ctx, pace.NextBackOff()); err != nil {
			return nil, l.store.explain(err)
		}
	}
}

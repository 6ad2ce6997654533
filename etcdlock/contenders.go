package etcdlock

import (
	"bytes"
	"context"
	"encoding/json"
	"os"
	"time"

	"github.com/tierlock/tierlock/internal/retry"
	"github.com/tierlock/tierlock/internal/second"
)

// owner is the value of a key.
type owner struct {
	Version int       `json:"v"`
	Host    string    `json:"host"`
	PID     int       `json:"pid"`
	Label   string    `json:"label,omitempty"`
	Linger  int64     `json:"linger_ms,omitempty"`
	Time    time.Time `json:"time"`             // by the owner's clock
	Shared  bool      `json:"shared,omitempty"` // a writer that has let readers in
	Revoke  bool      `json:"revoke,omitempty"` // somebody has asked it to give the lock up
}

func newOwner(label string) owner {
	host, _ := os.Hostname() // only for people to read
	return owner{Version: 1, Host: host, PID: os.Getpid(), Label: label}
}

// describe returns a description of the process for a key created now.
func (l *claim) describe() string {
	o := l.store.owner
	o.Linger, o.Time = l.linger.Milliseconds(), time.Now().UTC()
	return encode(o)
}

// marked returns the value of a key of this package with another field set. What a later version
// has put there stays.
func marked(value, field string) string {
	fields := make(map[string]json.RawMessage)
	json.Unmarshal([]byte(value), &fields) // has been read before
	fields[field] = json.RawMessage("true")
	return encode(fields)
}

func encode(fields any) string {
	var value bytes.Buffer
	encoder := json.NewEncoder(&value)
	encoder.SetEscapeHTML(false) // keeps the value below one KiB whatever the label
	encoder.Encode(fields)       // strings, numbers and a time that was present: cannot fail
	return string(bytes.TrimSpace(value.Bytes()))
}

// ownerIn is what the process says that made a key of this value, if that is of this package.
func ownerIn(value []byte) (o owner, ours bool) {
	ours = json.Unmarshal(value, &o) == nil && o.Version == 1
	if !ours {
		return owner{}, false
	}
	return o, true
}

// Contenders reads the queue with one request, as it was at one revision.
func (l *claim) Contenders(ctx context.Context) ([]second.Contender, error) {
	places, err := l.read(ctx)
	if err != nil {
		return nil, l.failure("contenders of", err)
	}
	var queue []second.Contender
	for _, p := range places {
		queue = append(queue, p.describe(l.prefix()))
	}
	return queue, nil
}

// read looks at the queue until that is answered.
func (l *claim) read(ctx context.Context) (places []place, err error) {
	err = l.store.insist(ctx, func(ctx context.Context) (err error) {
		_, places, err = l.look(ctx)
		return err
	})
	return places, err
}

// insist repeats a request until it is answered, or ctx is done.
func (s *store) insist(ctx context.Context, request func(context.Context) error) error {
	ctx, end := s.scope(ctx)
	defer end()
	for pace := retry.New(); ; {
		err := request(ctx)
		if err == nil || classify(err) == permanent {
			return err
		}
		if err := retry.Pause(ctx, pace.NextBackOff()); err != nil {
			return s.explain(err)
		}
	}
}

func (p place) describe(prefix string) second.Contender {
	o, _ := ownerIn([]byte(p.value))
	return second.Contender{
		ID: second.Text(p.key[len(prefix):]), Token: p.created, Since: o.Time, Host: second.Text(o.Host), PID: o.PID, Label: second.Text(o.Label),
		Linger: time.Duration(o.Linger) * time.Millisecond, Shared: p.reads, Asked: p.asked,
	}
}

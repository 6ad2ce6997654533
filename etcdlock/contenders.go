package etcdlock

import (
	"bytes"
	"context"
	"encoding/json"
	"os"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"

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
	Time    time.Time `json:"time"` // by the owner's clock
}

func newOwner(label string) owner {
	host, _ := os.Hostname() // only for people to read
	return owner{Version: 1, Host: host, PID: os.Getpid(), Label: label}
}

// describe returns a description of the process for a key created now.
func (l *claim) describe() string {
	o := l.store.owner
	o.Linger, o.Time = l.linger.Milliseconds(), time.Now().UTC()
	var value bytes.Buffer
	encoder := json.NewEncoder(&value)
	encoder.SetEscapeHTML(false) // keeps the value below one KiB whatever the label
	encoder.Encode(o)            // strings, a number and a present time: cannot fail
	return string(bytes.TrimSpace(value.Bytes()))
}

// Contenders reads the queue with one request, as it was at one revision.
func (l *claim) Contenders(ctx context.Context) ([]second.Contender, error) {
	ctx, end := l.store.scope(ctx)
	defer end()
	for pace := retry.New(); ; {
		queue, err := l.contenders(ctx)
		if err == nil {
			return queue, nil
		}
		if classify(err) != permanent {
			err = retry.Pause(ctx, pace.NextBackOff())
		}
		if err != nil {
			return nil, l.failure("contenders of", l.store.explain(err))
		}
	}
}

func (l *claim) contenders(ctx context.Context) ([]second.Contender, error) {
	var answer *clientv3.GetResponse
	err := l.store.call(ctx, func(ctx context.Context) (err error) {
		answer, err = l.store.client.Get(ctx, l.prefix(), clientv3.WithPrefix(),
			clientv3.WithSort(clientv3.SortByCreateRevision, clientv3.SortAscend))
		return err
	})
	if err != nil {
		return nil, err
	}
	var queue []second.Contender
	for _, kv := range answer.Kvs {
		if isContender(l.prefix(), string(kv.Key)) {
			queue = append(queue, placeOf(kv).describe(l.prefix()))
		}
	}
	return queue, nil
}

func (p place) describe(prefix string) second.Contender {
	c := second.Contender{ID: p.key[len(prefix):], Token: p.created}
	var o owner
	if json.Unmarshal([]byte(p.value), &o) == nil && o.Version == 1 {
		c.Since, c.Host, c.PID, c.Label = o.Time, o.Host, o.PID, o.Label
		c.Linger = time.Duration(o.Linger) * time.Millisecond
	}
	return c
}

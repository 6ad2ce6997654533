package zknode

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/url"
	"time"

	"github.com/go-zookeeper/zk"

	"github.com/tierlock/tierlock/internal/retry"
	"github.com/tierlock/tierlock/internal/second"
	"github.com/tierlock/tierlock/internal/zkqueue"
)

// The node values is the parent of all values. A value below its lock path would disturb other libraries, and would prevent the path from
// being deleted and created again. The parent is outside of any chroot, because clients with different chroots may share a lock.
const values = "/tierlock-values"

// The method value returns the path of the value that belongs to the lock.
func (l *Lock) value() string { return values + "/" + url.PathEscape(l.path) }

// Save repeats the write until there is an answer, as long as the node has the lock. It waits for the end of the previous Save, so that
// writes are sent in the order of the calls. The servers execute the requests of a session in the order in which they were sent.
func (g grant) Save(ctx context.Context, check func() error, data []byte) error {
	err := cmp.Or(check(), context.Cause(ctx))
	if err == nil {
		own := make(chan struct{})
		before, _ := g.saving.Swap(own).(chan struct{})
		_, err = second.Do(ctx, g.lock.client.link.Spawn, func() (struct{}, error) {
			defer close(own)
			g.writing.Add(1) // before check is called again
			defer g.writing.Add(-1)
			if before != nil {
				<-before
			}
			return struct{}{}, g.save(check, data)
		}, func(cause error) error { return fmt.Errorf("%w: %w", second.ErrUnknown, cause) })
	}
	if err != nil {
		return fmt.Errorf("zklock: save the value of %s: %w", g.lock.Path(), err)
	}
	return nil
}

func (g grant) save(check func() error, data []byte) error {
	ambiguous := false
	for pace := retry.New(); ; {
		err := g.saveOnce(check, data)
		if err == nil {
			return nil
		}
		unanswered := errors.Is(err, second.ErrUnknown)
		ambiguous = ambiguous || unanswered
		final := !unanswered && (errors.Is(err, second.ErrLost) || classify(err) == permanent || check() != nil)
		if !final {
			final = retry.Pause(g.scope(), pace.NextBackOff()) != nil
		}
		switch {
		case final && ambiguous && !unanswered:
			return fmt.Errorf("%w: %w", second.ErrUnknown, err)
		case final:
			return err
		}
	}
}

// saveOnce replaces the value, creates it, or removes it.
func (g grant) saveOnce(check func() error, data []byte) error {
	l, path := g.lock, g.lock.value()
	write := func(permission, at string, op any) error {
		_, err := l.client.write([]*Node{g.Node}, check, []any{op})
		return zkqueue.Lacking(permission, at, err)
	}
	if data == nil {
		err := write("DELETE", values, &zk.DeleteRequest{Path: path, Version: -1})
		if errors.Is(err, zk.ErrNoNode) {
			return nil
		}
		return err
	}
	content := []byte(second.EncodeValue(g.Token(), 0, time.Now(), data))
	err := write("WRITE", path, &zk.SetDataRequest{Path: path, Data: content, Version: -1})
	create := &zk.CreateRequest{Path: path, Data: content, Acl: l.acl}
	if errors.Is(err, zk.ErrNoNode) {
		err = write("CREATE", values, create)
	}
	if errors.Is(err, zk.ErrNoNode) {
		_, err = l.client.link.Conn.Create(values, nil, 0, l.acl)
		if err = zkqueue.Lacking("CREATE", "/", err); err == nil || errors.Is(err, zk.ErrNodeExists) {
			err = write("CREATE", values, create)
		}
	}
	return err
}

// Load first sends a write that changes nothing, for the same reason as [find], and then reads the value.
func (c claim) Load(ctx context.Context) (second.Value, error) {
	l, path := c.lock, c.lock.value()
	what := "load the value of " + l.Path()
	var stat *zk.Stat
	data, err := ask(ctx, l.client, what, func() (data []byte, err error) {
		if err = l.client.link.Transact(&zk.CheckVersionRequest{Path: path, Version: -1}); err == nil {
			data, stat, err = l.client.link.Conn.Get(path)
		}
		return data, zkqueue.Lacking("READ", path, err)
	})
	var v second.Value
	if err == nil {
		v, _, err = second.DecodeValue(data)
	} else if errors.Is(err, zk.ErrNoNode) {
		err = second.ErrNoValue
	} else {
		return v, err
	}
	if err != nil {
		return second.Value{}, fmt.Errorf("zklock: %s: %w", what, err)
	}
	v.Saved = time.UnixMilli(stat.Mtime)
	return v, nil
}

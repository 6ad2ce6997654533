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

// values is the parent of all values. A value below its lock path would be in the way of other libraries, and of a path that is created
// anew. The parent is outside of any chroot, as clients with another one share the lock.
const values = "/tierlock-values"

// value is the path of what is beside the lock.
func (l *Lock) value() string { return values + "/" + url.PathEscape(l.path) }

// Save repeats the write until there is an answer, as long as the node has the lock. The servers execute the requests of a session in
// order, so a write that is sent after the answer to another one cannot be overtaken by it.
func (g grant) Save(ctx context.Context, check func() error, data []byte) error {
	turn := g.saves.Add(1)
	err := cmp.Or(check(), context.Cause(ctx))
	if err == nil {
		_, err = second.Do(ctx, g.lock.client.link.Spawn, func() (struct{}, error) {
			g.writing.Add(1) // before check is called again
			defer g.writing.Add(-1)
			return struct{}{}, g.save(check, turn, data)
		}, func(cause error) error { return fmt.Errorf("%w: %w", second.ErrUnknown, cause) })
	}
	if err != nil {
		return fmt.Errorf("zklock: save the value of %s: %w", g.lock.Path(), err)
	}
	return nil
}

func (g grant) save(check func() error, turn int64, data []byte) error {
	ambiguous := false
	for pace := retry.New(); ; {
		err := g.saveOnce(check, turn, data)
		switch {
		case err == nil:
			return nil
		case errors.Is(err, second.ErrUnknown):
			ambiguous = true
		case errors.Is(err, second.ErrLost), classify(err) == permanent, check() != nil:
			if ambiguous {
				err = fmt.Errorf("%w: %w", second.ErrUnknown, err)
			}
			return err
		}
		if cause := retry.Pause(g.scope(), pace.NextBackOff()); cause != nil {
			return err
		}
	}
}

// saveOnce does nothing if a later write of the node was executed. One of them is under way at a time.
func (g grant) saveOnce(check func() error, turn int64, data []byte) error {
	g.saving.Lock()
	defer g.saving.Unlock()
	if turn <= g.saved {
		return nil
	}
	err := g.put(check, turn, data)
	if err == nil {
		g.saved = turn
	}
	return err
}

// put replaces the value, creates it, or removes it.
func (g grant) put(check func() error, turn int64, data []byte) error {
	l, path := g.lock, g.lock.value()
	write := func(op any) error {
		_, err := l.client.write([]*Node{g.Node}, check, []any{op})
		return err
	}
	if data == nil {
		if err := write(&zk.DeleteRequest{Path: path, Version: -1}); !errors.Is(err, zk.ErrNoNode) {
			return zkqueue.Lacking("DELETE", values, err)
		}
		return nil
	}
	content := []byte(second.EncodeValue(g.Token(), turn, time.Now(), data))
	for range rebuilds {
		if err := write(&zk.SetDataRequest{Path: path, Data: content, Version: -1}); !errors.Is(err, zk.ErrNoNode) {
			return zkqueue.Lacking("WRITE", path, err)
		}
		err := write(&zk.CreateRequest{Path: path, Data: content, Acl: l.acl})
		if errors.Is(err, zk.ErrNoNode) {
			if _, err = l.client.link.Conn.Create(values, nil, 0, l.acl); err == nil {
				continue
			}
		}
		if !errors.Is(err, zk.ErrNodeExists) {
			return zkqueue.Lacking("CREATE", values, err)
		}
	}
	return fmt.Errorf("%s is created and deleted again and again: %w", path, zk.ErrNoServer)
}

// Load first sends a write that changes nothing, as [find] does, and then reads what is there.
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

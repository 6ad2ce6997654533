package store

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/go-zookeeper/zk"

	"github.com/tierlock/tierlock/internal/test/zkserver"
)

// zkObserver has its own session.
type zkObserver struct {
	site
	conn    *zk.Conn
	created []string // the nodes above base that did not exist before, the deepest first
}

func observeZooKeeper(ctx context.Context, place Place) (Observer, error) {
	ctx, cancel := context.WithTimeout(ctx, reachTimeout)
	defer cancel()
	conn, err := connect(ctx, place.Servers)
	if err != nil {
		return nil, fmt.Errorf("%w: %w (without -zk, a private server is started)", noZooKeeper, err)
	}
	o := &zkObserver{site: place.site(), conn: conn}
	if err := o.createBase(); err != nil {
		o.Close()
		return nil, err
	}
	return o, nil
}

// Renew opens another session. After an outage, a handshake may not have reached the server, and the client library can take minutes to
// notice that.
func (o *zkObserver) Renew(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, reachTimeout)
	defer cancel()
	conn, err := connect(ctx, o.servers)
	if err != nil {
		return err
	}
	o.conn.Close()
	o.conn = conn
	return nil
}

// Orphans counts the children of the lock paths, also of the paths that semaphores use.
func (o *zkObserver) Orphans() (n int64, err error) {
	for _, p := range o.paths {
		if _, err := o.conn.Sync(p); err != nil {
			return n, fmt.Errorf("look for leaked nodes: %w", err)
		}
		for _, parent := range parentsAt(p) {
			children, _, err := o.conn.Children(parent)
			if err != nil && !errors.Is(err, zk.ErrNoNode) {
				return n, fmt.Errorf("look for leaked nodes: %w", err)
			}
			for _, child := range children {
				if !slices.Contains(parentsAt(p), p+"/"+child) {
					n++
				}
			}
		}
	}
	return n, nil
}

// parentsAt returns the nodes that may be parents of contenders and permits, the deepest first. They are containers: ZooKeeper keeps an
// empty container for a while.
func parentsAt(path string) []string { return []string{path + "/locks", path + "/leases", path} }

// createBase creates the parent of the lock paths, and those nodes above it that are missing.
func (o *zkObserver) createBase() error {
	for i, c := range o.base + "/" {
		if c != '/' || i == 0 {
			continue
		}
		_, err := o.conn.Create(o.base[:i], nil, 0, zk.WorldACL(zk.PermAll))
		if err == nil && i < len(o.base) {
			o.created = slices.Insert(o.created, 0, o.base[:i])
		} else if err != nil && !errors.Is(err, zk.ErrNodeExists) {
			return err
		}
	}
	return nil
}

func (o *zkObserver) Close() {
	var parents []string
	for _, p := range o.paths {
		parents = append(parents, parentsAt(p)...)
	}
	for _, p := range slices.Concat(parents, []string{o.base}, o.created) {
		_ = o.conn.Delete(p, -1) // an error is no problem: a container may already be gone, or may still have a leaked node
	}
	o.conn.Close()
}

func (o *zkObserver) Traffic() (sum Traffic, ok bool) {
	for _, addr := range zk.FormatServers(slices.Clone(o.servers)) {
		answer, err := zkserver.Ask(addr, "srvr")
		if err != nil {
			return sum, false
		}
		t, ok := parseTraffic(answer)
		if !ok {
			return sum, false
		}
		sum.Packets += t.Packets
		sum.Writes = max(sum.Writes, t.Writes) // not a sum: each server has, or will have, all writes
	}
	return sum, true
}

// parseTraffic parses an answer to the command srvr. zk.FLWSrvr fails from ZooKeeper 3.6 on, because it expects the date in an old
// format.
func parseTraffic(srvr string) (t Traffic, ok bool) {
	_, numbers, _ := strings.Cut(srvr, "\nReceived: ")
	var received, sent int64
	if _, err := fmt.Sscanf(numbers, "%d\nSent: %d\n", &received, &sent); err != nil {
		return t, false
	}
	_, zxid, _ := strings.Cut(srvr, "\nZxid: ")
	if _, err := fmt.Sscanf(zxid, "0x%x", &t.Writes); err != nil {
		return t, false
	}
	t.Packets = received + sent
	return t, true
}

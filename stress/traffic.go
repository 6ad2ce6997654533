package main

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/go-zookeeper/zk"

	"github.com/tierlock/tierlock/internal/zkserver"
)

// traffic is what servers have done so far.
type traffic struct {
	packets int64 // received and sent
	writes  int64 // transactions
}

// traffic is false if a server does not say.
func (o *observer) traffic() (sum traffic, ok bool) {
	for _, addr := range zk.FormatServers(slices.Clone(o.servers)) {
		answer, err := zkserver.Ask(addr, "srvr")
		if err != nil {
			return sum, false
		}
		t, ok := parseTraffic(answer)
		if !ok {
			return sum, false
		}
		sum.packets += t.packets
		sum.writes = max(sum.writes, t.writes) // each server has them all, or will
	}
	return sum, true
}

// parseTraffic reads an answer to srvr. zk.FLWSrvr cannot, from ZooKeeper 3.6 on: it
// knows only the old form of the date.
func parseTraffic(srvr string) (t traffic, ok bool) {
	_, numbers, _ := strings.Cut(srvr, "\nReceived: ")
	var received, sent int64
	if _, err := fmt.Sscanf(numbers, "%d\nSent: %d\n", &received, &sent); err != nil {
		return t, false
	}
	_, zxid, _ := strings.Cut(srvr, "\nZxid: ")
	if _, err := fmt.Sscanf(zxid, "0x%x", &t.writes); err != nil {
		return t, false
	}
	t.packets = received + sent
	return t, true
}

const (
	quorumWrites   = 200
	quorumPatience = time.Second
)

// quorumWrite is the median of the times that small writes take while nothing else is
// going on; zero if it cannot be measured. They come a section apart, as hand-overs do:
// a machine that has been idle for a moment takes longer to answer.
func (o *observer) quorumWrite(ctx context.Context, section time.Duration) time.Duration {
	if err := o.createBase(); err != nil {
		return 0
	}
	ctx, cancel := context.WithTimeout(ctx, quorumPatience)
	defer cancel()
	took := make([]time.Duration, 0, quorumWrites)
	for len(took) < quorumWrites && ctx.Err() == nil {
		if section > 0 {
			sleep(ctx, nil, section)
		}
		start := time.Now()
		if _, err := o.conn.Set(o.base, []byte("x"), -1); err != nil {
			return 0
		}
		took = append(took, time.Since(start))
	}
	if len(took) == 0 {
		return 0
	}
	slices.Sort(took)
	return took[len(took)/2]
}

// createBase creates the parent of the lock paths, and what is missing above it.
func (o *observer) createBase() error {
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

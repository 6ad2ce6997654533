package main

import (
	"context"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/tierlock/tierlock/internal/test/zkserver"
	"github.com/tierlock/tierlock/stress/internal/clock"
)

// figures are the counts of a server: totals since its start, values at one time, or values that a formula predicts.
type figures struct {
	Requests float64 // requests that the server has received
	Sent     float64 // answers and events that the server has sent
	Writes   float64 // transactions: the servers agree on them and log them
	Znodes   float64 // znodes of all kinds
	Watches  float64
}

// The function ask reads the counts of the server at addr. The server counts each call as two requests and three answers.
func ask(addr string, asked *int) (f figures, err error) {
	mntr, err := zkserver.Ask(addr, "mntr")
	if err != nil {
		return f, err
	}
	srvr, err := zkserver.Ask(addr, "srvr")
	if err != nil {
		return f, err
	}
	*asked++
	for name, value := range map[string]*float64{
		"zk_packets_received": &f.Requests, "zk_packets_sent": &f.Sent, "zk_znode_count": &f.Znodes, "zk_watch_count": &f.Watches,
	} {
		_, rest, found := strings.Cut(mntr, name+"\t")
		text, _, _ := strings.Cut(rest, "\n")
		if *value, err = strconv.ParseFloat(strings.TrimSpace(text), 64); !found || err != nil {
			return f, fmt.Errorf("no %s in what the server says: %w", name, err)
		}
	}
	_, rest, _ := strings.Cut(srvr, "\nZxid: ")
	text, _, _ := strings.Cut(rest, "\n")
	zxid, err := strconv.ParseUint(strings.TrimSpace(text), 0, 64)
	if err != nil {
		return f, fmt.Errorf("no zxid in what the server says: %w", err)
	}
	f.Writes = float64(zxid & 0xffffffff)
	f.Requests -= 2 * float64(*asked)
	f.Sent -= 3 * float64(*asked)
	return f, nil
}

// The function settle waits until the numbers of znodes and watches have not changed for two seconds.
func settle(ctx context.Context, addr string, asked *int) error {
	const still, patience = 4, 240
	var last figures
	for same := 0; same < still; {
		now, err := ask(addr, asked)
		if err != nil {
			return err
		}
		if same++; now.Znodes != last.Znodes || now.Watches != last.Watches {
			same = 0
		}
		last = now
		if clock.Sleep(500*time.Millisecond, ctx.Done()); ctx.Err() != nil {
			return context.Cause(ctx)
		}
	}
	return nil
}

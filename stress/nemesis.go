package main

import (
	"context"
	"fmt"
	"io"
	"math/rand/v2"
	"sync"
	"time"

	"github.com/tierlock/tierlock/internal/zkserver"
)

// diary is what was done to workers and servers.
type diary struct {
	stderr io.Writer
	begin  instant

	mu           sync.Mutex // guards the fields below
	counts       map[string]int64
	disturbances []disturbance
	stops        []stop
	errors       []error // faults that could not be healed
}

// did records a fault that began at from and has just been healed, or could not be.
func (d *diary) did(kind string, from instant, err error) {
	until := now()
	d.mu.Lock()
	defer d.mu.Unlock()
	d.counts[kind]++
	d.disturbances = append(d.disturbances, disturbance{from, until})
	if err != nil {
		d.errors = append(d.errors, fmt.Errorf("%s: %w", kind, err))
	}
	fmt.Fprintf(d.stderr, "%7.3fs  %s, for %v\n", from.sub(d.begin).Seconds(), kind, until.sub(from).Round(time.Millisecond))
}

func (d *diary) stopped(s stop) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.stops = append(d.stops, s)
}

// nemesis does one thing after the other until ctx ends, and heals what it did.
type nemesis struct {
	random  *rand.Rand
	timeout time.Duration // of sessions
	diary   *diary
}

// rage goes through the faults in one random order after the other, with pauses of up
// to so many session timeouts in between.
func (n *nemesis) rage(ctx context.Context, faults []func(context.Context), calm float64) {
	for {
		for _, i := range n.random.Perm(len(faults)) {
			if n.pause(ctx, 0.05, calm); ctx.Err() != nil {
				return
			}
			faults[i](ctx)
		}
	}
}

// pause waits for between low and high session timeouts, or until ctx ends.
func (n *nemesis) pause(ctx context.Context, low, high float64) {
	share := low + (high-low)*n.random.Float64()
	sleep(ctx, nil, time.Duration(share*float64(n.timeout)))
}

// workerFaults are what can happen to a worker.
func (n *nemesis) workerFaults(f *fleet, registers *fence) []func(context.Context) {
	someone := func() *slot { return f.slots[n.random.IntN(len(f.slots))] }
	return []func(context.Context){
		func(ctx context.Context) {
			s := n.holder(ctx, f, registers)
			from := now()
			s.kill()
			n.pause(ctx, 0, 0.3)
			n.diary.did("kill worker", from, f.launch(s))
		},
		func(ctx context.Context) { n.stopWorker(ctx, n.holder(ctx, f, registers)) },
		func(ctx context.Context) { n.stopWorker(ctx, someone()) },
		func(ctx context.Context) {
			s, from := someone(), now()
			s.relay.cut()
			n.pause(ctx, 0, 1.3)
			s.relay.heal()
			n.diary.did("cut worker off", from, nil)
		},
		func(ctx context.Context) {
			s, from := someone(), now()
			s.relay.mute()
			n.pause(ctx, 0, 1.3)
			s.relay.heal()
			n.diary.did("mute worker", from, nil)
		},
	}
}

// holder waits until a worker is in a section, and takes the first one if that takes too
// long; how long is not the seed's to decide, so nothing is drawn here.
func (n *nemesis) holder(ctx context.Context, f *fleet, registers *fence) *slot {
	ctx, cancel := context.WithTimeout(ctx, n.timeout)
	defer cancel()
	for ; ctx.Err() == nil; sleep(ctx, nil, time.Millisecond) {
		for _, process := range registers.inside() {
			if s := f.slots[slotOf(int(process), len(f.slots))]; int64(s.process) == process {
				return s
			}
		}
	}
	return f.slots[0]
}

func (n *nemesis) stopWorker(ctx context.Context, s *slot) {
	from := now()
	if !s.pause() {
		return // it died by itself, which the end of the run finds out
	}
	at := now()
	n.pause(ctx, 0.4, 1.6)
	n.diary.stopped(stop{Process: s.process, From: at, Until: now()})
	s.resume()
	n.diary.did("stop worker", from, nil)
}

// serverFaults are what can happen to a server. There is only one at a time, so an
// ensemble keeps its majority.
func (n *nemesis) serverFaults(cluster *zkserver.Ensemble) []func(context.Context) {
	victims := map[string]func() *zkserver.Server{
		"server": func() *zkserver.Server { return cluster.Members[0] },
	}
	if len(cluster.Members) > 1 {
		victims = map[string]func() *zkserver.Server{
			"follower": func() *zkserver.Server { return n.one(cluster.Followers()) },
			"leader":   func() *zkserver.Server { return n.leader(cluster) },
		}
	}
	var faults []func(context.Context)
	for _, role := range []string{"server", "follower", "leader"} { // a map's order is not of the seed
		if victim, ok := victims[role]; ok {
			faults = append(faults,
				func(ctx context.Context) { n.killServer(ctx, role, victim()) },
				func(ctx context.Context) { n.stopServer(ctx, role, victim()) })
		}
	}
	return faults
}

// leader returns nil during an election that takes long.
func (n *nemesis) leader(cluster *zkserver.Ensemble) *zkserver.Server {
	ctx, cancel := context.WithTimeout(context.Background(), n.timeout)
	defer cancel()
	leader, err := cluster.Leader(ctx)
	if err != nil {
		return nil
	}
	return leader
}

func (n *nemesis) one(servers []*zkserver.Server) *zkserver.Server {
	if len(servers) == 0 {
		return nil
	}
	return servers[n.random.IntN(len(servers))]
}

func (n *nemesis) killServer(ctx context.Context, role string, s *zkserver.Server) {
	if s == nil {
		return
	}
	from := now()
	s.Kill()
	n.pause(ctx, 0, 1)
	n.diary.did("kill "+role, from, s.Restart(context.Background())) // bounds itself
}

func (n *nemesis) stopServer(ctx context.Context, role string, s *zkserver.Server) {
	if s == nil {
		return
	}
	from := now()
	err := s.Pause()
	n.pause(ctx, 0.1, 1.2)
	if err == nil {
		err = s.Resume()
	}
	n.diary.did("stop "+role, from, err)
}

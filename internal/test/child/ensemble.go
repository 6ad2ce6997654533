package child

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"syscall"
	"time"
)

// Ensemble is a set of servers that replicate one another, or a single server.
type Ensemble struct {
	Members []*Server
	Network *Network // carries the traffic between the members until Stop; nil if the members are connected directly
	// Succeed makes another member the leader after the leader was killed. Succeed is nil if the servers elect a leader themselves.
	Succeed func(ctx context.Context) error
}

// Start starts the servers that build describes, and returns once each of them serves requests. The end of ctx ends the attempt, not the
// servers. An error ends with the last output of the server that failed. If that server could not bind its address, the error wraps
// EADDRINUSE.
//
// Another program may take a port after build has found it free, and before the server binds it. In that case Start calls build again, for
// other addresses.
func Start(ctx context.Context, build func() (*Ensemble, error)) (*Ensemble, error) {
	ctx, cancel := context.WithTimeout(ctx, startTimeout)
	defer cancel()
	var tried []string
	for {
		e, err := build()
		if err != nil {
			return nil, err
		}
		err = start(ctx, e.Members...)
		if err == nil {
			return e, nil
		}
		err = errors.Join(err, e.Stop())
		if !errors.Is(err, syscall.EADDRINUSE) || ctx.Err() != nil || slices.Equal(e.Addrs(), tried) {
			return nil, err
		}
		tried = e.Addrs()
	}
}

func start(ctx context.Context, servers ...*Server) error {
	for _, s := range servers {
		if err := s.launch(); err != nil {
			return err
		}
	}
	for _, s := range servers {
		if err := s.await(ctx); err != nil {
			return err
		}
	}
	return nil
}

// Addrs returns the addresses of the members.
func (e *Ensemble) Addrs() []string {
	var addrs []string
	for _, s := range e.Members {
		addrs = append(addrs, s.Addr())
	}
	return addrs
}

// Leader waits until a member is the leader, and returns that member.
func (e *Ensemble) Leader(ctx context.Context) (*Server, error) {
	var leaders []*Server
	err := Until(ctx, func() bool {
		leaders = e.in("leader")
		return len(leaders) > 0
	})
	if err != nil {
		return nil, fmt.Errorf("no leader: %w", err)
	}
	return leaders[0], nil
}

// Followers lists the members that are followers at this moment.
func (e *Ensemble) Followers() []*Server { return e.in("follower") }

func (e *Ensemble) in(mode string) []*Server {
	var members []*Server
	for _, s := range e.Members {
		if m, err := s.Mode(); err == nil && m == mode {
			members = append(members, s)
		}
	}
	return members
}

// Isolate cuts member off from the other members. Clients still reach all members. Connections between the members stay open but carry
// nothing, and new connections get no answer. Isolate requires a Network.
func (e *Ensemble) Isolate(member *Server) { e.Network.Isolate(slices.Index(e.Members, member) + 1) }

// Heal connects all members again. Data that was sent in the meantime arrives, unless its connection was given up.
func (e *Ensemble) Heal() { e.Network.Heal() }

// Pause freezes all members.
func (e *Ensemble) Pause() error { return e.each((*Server).Pause) }

// Resume lets all members continue after Pause.
func (e *Ensemble) Resume() error { return e.each((*Server).Resume) }

// Failover kills the leader, and starts it again once another member leads.
func (e *Ensemble) Failover(ctx context.Context) error {
	leader, err := e.Leader(ctx)
	if err != nil {
		return err
	}
	leader.Kill()
	if e.Succeed != nil {
		if err := e.Succeed(ctx); err != nil {
			return err
		}
	}
	_, err = e.Leader(ctx)
	return errors.Join(err, leader.Restart(ctx))
}

// Restart kills all members, and starts them again together. A member alone could not serve requests.
func (e *Ensemble) Restart(ctx context.Context) error {
	for _, s := range e.Members {
		s.Kill()
	}
	errs := make([]error, len(e.Members))
	var all sync.WaitGroup
	for i, s := range e.Members {
		all.Go(func() { errs[i] = s.Restart(ctx) })
	}
	all.Wait()
	return errors.Join(errs...)
}

// Stop kills all members and removes their directories.
func (e *Ensemble) Stop() error {
	err := e.each((*Server).Stop)
	if e.Network != nil {
		e.Network.Close()
	}
	return err
}

func (e *Ensemble) each(do func(*Server) error) error {
	var errs []error
	for _, s := range e.Members {
		errs = append(errs, do(s))
	}
	return errors.Join(errs...)
}

// Until calls holds repeatedly until it returns true. If ctx ends first, it returns the cause.
func Until(ctx context.Context, holds func() bool) error {
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	for !holds() {
		select {
		case <-ctx.Done():
			return context.Cause(ctx)
		case <-tick.C:
		}
	}
	return nil
}

package zkserver

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"syscall"
	"time"
)

// Ensemble is a set of servers that replicate one another.
type Ensemble struct {
	Members []*Server
}

// StartEnsemble starts n servers and returns once each of them serves. Errors are those
// of [Start]. cfg.Port must be zero.
func StartEnsemble(ctx context.Context, n int, cfg Config) (*Ensemble, error) {
	return StartMembers(ctx, slices.Repeat([]Config{cfg}, n)...)
}

// StartMembers is [StartEnsemble] for servers that differ.
func StartMembers(ctx context.Context, members ...Config) (*Ensemble, error) {
	ctx, cancel := context.WithTimeout(ctx, startTimeout)
	defer cancel()
	launcher, err := find()
	if err != nil {
		return nil, err
	}
	for {
		e, err := startEnsemble(ctx, launcher, members)
		if errors.Is(err, syscall.EADDRINUSE) && ctx.Err() == nil {
			continue
		}
		return e, err
	}
}

func startEnsemble(ctx context.Context, launcher launcher, members []Config) (*Ensemble, error) {
	e := &Ensemble{}
	err := e.build(launcher, members)
	for _, s := range e.Members {
		if err == nil {
			err = s.launch()
		}
	}
	for _, s := range e.Members {
		if err == nil {
			err = s.await(ctx)
		}
	}
	if err != nil {
		return nil, errors.Join(err, e.Stop())
	}
	return e, nil
}

func (e *Ensemble) build(launcher launcher, members []Config) error {
	var peers []string
	for i, cfg := range members {
		s, err := newServer(launcher, cfg)
		if err != nil {
			return err
		}
		s.id = i + 1
		e.Members = append(e.Members, s)
		quorum, err1 := freePort()
		election, err2 := freePort()
		if err := errors.Join(err1, err2); err != nil {
			return err
		}
		peers = append(peers, fmt.Sprintf("server.%d=%s:%d:%d", s.id, s.cfg.Host, quorum, election))
	}
	for _, s := range e.Members {
		s.peers = peers
	}
	return nil
}

// Addrs lists the members' addresses.
func (e *Ensemble) Addrs() []string {
	var addrs []string
	for _, s := range e.Members {
		addrs = append(addrs, s.Addr())
	}
	return addrs
}

// Leader waits until a member serves as leader and returns it.
func (e *Ensemble) Leader(ctx context.Context) (*Server, error) {
	tick := time.NewTicker(pollEvery)
	defer tick.Stop()
	for {
		if leaders := e.in("leader"); len(leaders) > 0 {
			return leaders[0], nil
		}
		select {
		case <-ctx.Done():
			return nil, fmt.Errorf("zkserver: no leader: %w", context.Cause(ctx))
		case <-tick.C:
		}
	}
}

// Followers lists the members that serve as followers at this moment.
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

// Stop kills all members and removes their data.
func (e *Ensemble) Stop() error {
	var errs []error
	for _, s := range e.Members {
		errs = append(errs, s.Stop())
	}
	return errors.Join(errs...)
}

package zkserver

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"syscall"

	"github.com/tierlock/tierlock/internal/child"
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
	launcher, err := find()
	if err != nil {
		return nil, err
	}
	for {
		e := &Ensemble{}
		if err := e.build(launcher, members); err != nil {
			return nil, errors.Join(err, e.Stop())
		}
		err := child.Start(ctx, e.children()...)
		if errors.Is(err, syscall.EADDRINUSE) && ctx.Err() == nil {
			continue
		}
		if err != nil {
			return nil, err
		}
		return e, nil
	}
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
		quorum, err1 := child.FreePort()
		election, err2 := child.FreePort()
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

func (e *Ensemble) children() []*child.Server {
	var children []*child.Server
	for _, s := range e.Members {
		children = append(children, s.Server)
	}
	return children
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
	var leaders []*Server
	err := child.Until(ctx, func() bool {
		leaders = e.in("leader")
		return len(leaders) > 0
	})
	if err != nil {
		return nil, fmt.Errorf("zkserver: no leader: %w", err)
	}
	return leaders[0], nil
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

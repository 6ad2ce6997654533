package zkserver

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/tierlock/tierlock/internal/test/child"
)

// Ensemble is a set of servers that replicate one another.
type Ensemble = child.Ensemble

// StartEnsemble starts n servers and returns once each of them serves requests. Errors are those of [Start]. cfg.Port must be zero.
func StartEnsemble(ctx context.Context, n int, cfg Config) (*Ensemble, error) {
	return StartMembers(ctx, slices.Repeat([]Config{cfg}, n)...)
}

// StartMembers is like [StartEnsemble], for servers with different configurations.
func StartMembers(ctx context.Context, members ...Config) (*Ensemble, error) {
	launcher, err := find()
	if err != nil {
		return nil, err
	}
	return child.Start(ctx, func() (*Ensemble, error) { return build(launcher, members) })
}

func build(launcher launcher, members []Config) (*Ensemble, error) {
	e := &Ensemble{}
	var programs []*program
	var peers []string
	for i, cfg := range members {
		p, err := newProgram(launcher, cfg)
		if err != nil {
			return nil, errors.Join(err, e.Stop())
		}
		p.id = i + 1
		programs = append(programs, p)
		e.Members = append(e.Members, child.New(kind, p.dir, p.addr(), p))
		quorum, err1 := child.FreePort()
		election, err2 := child.FreePort()
		if err := errors.Join(err1, err2); err != nil {
			return nil, errors.Join(err, e.Stop())
		}
		peers = append(peers, fmt.Sprintf("server.%d=%s:%d:%d", p.id, p.cfg.Host, quorum, election))
	}
	if len(programs) > 1 {
		for _, p := range programs {
			p.peers = peers
		}
	}
	return e, nil
}

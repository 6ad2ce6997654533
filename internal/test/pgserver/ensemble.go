package pgserver

import (
	"context"
	"errors"
	"fmt"
	"net"
	"strconv"
	"strings"

	"github.com/tierlock/tierlock/internal/test/child"
)

// Ensemble is a primary and standbys. At first, the primary is the first member. The standbys stream from the primary, and answer queries.
// This process carries the traffic between them, so an ensemble ends with this process.
//
// An isolated primary keeps running. With synchronous writes, it acknowledges no write. There is no automatic fail-over: a standby replaces
// the primary only after a call of [Ensemble.Promote] or Failover, even if the primary keeps running.
type Ensemble struct {
	*child.Ensemble
	cluster *cluster
}

// A cluster is the common state of the members of an ensemble.
type cluster struct {
	*installation
	cfg      Config
	owner    owner
	template string
	primary  *program
}

var kind = child.Kind{Package: "pgserver", Taken: "Address already in use", Clear: removeSegment}

// StartEnsemble starts a primary and n-1 standbys and returns once each of them serves requests. Errors are those of [Start].
func StartEnsemble(ctx context.Context, n int, cfg Config) (*Ensemble, error) {
	installation, err := find()
	if err != nil {
		return nil, err
	}
	e := &Ensemble{}
	e.Ensemble, err = child.Start(ctx, func() (*child.Ensemble, error) {
		return e.build(installation, n, cfg)
	})
	if err != nil {
		return nil, err
	}
	e.Succeed = e.promoteNearest
	return e, nil
}

func (e *Ensemble) build(installation *installation, n int, cfg Config) (_ *child.Ensemble, err error) {
	c := &cluster{installation: installation, cfg: cfg}
	e.cluster = c
	all := &child.Ensemble{Network: child.NewNetwork()}
	defer func() {
		if err != nil {
			err = errors.Join(fmt.Errorf("pgserver: %w", err), all.Stop())
		}
	}()
	if c.owner, err = servant(); err != nil {
		return nil, err
	}
	if c.template, err = template(installation, c.owner); err != nil {
		return nil, err
	}
	var programs []*program
	for id := 1; id <= n; id++ {
		dir, addr, err := child.Place("postgresql", cfg.Port)
		if err != nil {
			return nil, err
		}
		p := &program{cluster: c, dir: dir, id: id, addr: addr}
		p.server = child.New(kind, dir, addr, p)
		programs = append(programs, p)
		all.Members = append(all.Members, p.server)
		if err := c.owner.gets(dir); err != nil {
			return nil, err
		}
	}
	c.primary = programs[0]
	return all, c.join(all.Network, programs)
}

// The method join connects each member to every other member.
func (c *cluster) join(network *child.Network, programs []*program) error {
	for _, p := range programs {
		for _, other := range programs {
			if other == p {
				continue
			}
			from, err := net.Listen("unix", p.socketTo(other.id))
			if err != nil {
				return err
			}
			to := &net.UnixAddr{Net: "unix", Name: other.ownSocket()}
			network.Join(child.Way{From: p.id, To: other.id}, from, to)
			if err := c.owner.gets(p.socketTo(other.id)); err != nil {
				return err
			}
		}
	}
	return nil
}

// Promote makes a standby the primary, and returns once it accepts writes. From then on, the other standbys follow it. The old primary
// keeps running unless it is dead. At its next Restart it becomes a standby.
func (e *Ensemble) Promote(ctx context.Context, standby *Server) error {
	p := standby.Program.(*program)
	if _, err := p.query(ctx, "SELECT pg_promote(true, 30)"); err != nil {
		return err
	}
	if mode, err := p.Mode(); err != nil || mode != "leader" {
		return errors.Join(fmt.Errorf("pgserver: %s is not promoted but %q", p.addr, mode), err)
	}
	e.cluster.primary = p
	for _, other := range e.Followers() {
		follower := other.Program.(*program)
		if err := follower.configure(); err != nil {
			return err
		}
		if _, err := follower.query(ctx, "SELECT pg_reload_conf()"); err != nil {
			return err
		}
	}
	return nil
}

// promoteNearest promotes the standby that has received most of the primary's writes. With synchronous writes, that standby has all
// acknowledged writes.
func (e *Ensemble) promoteNearest(ctx context.Context) error {
	var nearest *Server
	var most uint64
	for _, standby := range e.Followers() {
		text, err := standby.Program.(*program).query(ctx, "SELECT pg_wal_lsn_diff(pg_last_wal_receive_lsn(), '0/0')")
		if err != nil {
			return err
		}
		received, _ := strconv.ParseUint(strings.TrimSpace(text), 10, 64) // empty if the standby has received nothing yet
		if nearest == nil || received > most {
			nearest, most = standby, received
		}
	}
	if nearest == nil {
		return errors.New("pgserver: no standby serves")
	}
	return e.Promote(ctx, nearest)
}

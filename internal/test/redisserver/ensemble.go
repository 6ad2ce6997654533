package redisserver

import (
	"context"
	"errors"
	"fmt"
	"net"
	"path/filepath"
	"slices"
	"syscall"

	"github.com/tierlock/tierlock/internal/test/child"
)

// Ensemble is a primary and its replicas. At first, the primary is the first member. This process carries the traffic between them, so an
// ensemble ends with this process.
type Ensemble struct {
	*child.Ensemble
	programs []*program
	isolated map[*program]bool
}

var kind = child.Kind{Package: "redisserver", Taken: "Address already in use"}

// StartEnsemble starts a primary and n-1 replicas. It returns once each of them serves requests and the replicas have the primary's data.
// Errors are those of [Start].
func StartEnsemble(ctx context.Context, n int, cfg Config) (*Ensemble, error) {
	e, err := start(ctx, n, cfg)
	if err != nil {
		return nil, err
	}
	if err := child.Until(ctx, func() bool { return len(e.Followers()) == n-1 }); err != nil {
		return nil, errors.Join(fmt.Errorf("redisserver: no replica in touch: %w", err), e.Stop())
	}
	return e, nil
}

// The function start starts n servers. It returns once each of them serves requests.
func start(ctx context.Context, n int, cfg Config) (*Ensemble, error) {
	redis, err := find()
	if err != nil {
		return nil, err
	}
	if cfg.MaxLag == 0 {
		cfg.MaxLag = 10
	}
	e := &Ensemble{isolated: make(map[*program]bool)}
	e.Ensemble, err = child.Start(ctx, func() (*child.Ensemble, error) { return e.build(redis, n, cfg) })
	if err != nil {
		return nil, err
	}
	return e, nil
}

func (e *Ensemble) build(redis string, n int, cfg Config) (_ *child.Ensemble, err error) {
	e.programs = nil
	members := &child.Ensemble{Network: child.NewNetwork()}
	defer func() {
		if err != nil {
			err = errors.Join(err, members.Stop())
		}
	}()
	for range n {
		dir, addr, err := child.Place("redis", cfg.Port)
		if err != nil {
			return nil, err
		}
		if dir, err = filepath.EvalSymlinks(dir); err != nil { // the form in which the server reports it
			return nil, err
		}
		p := &program{redis: redis, cfg: cfg, dir: dir, addr: addr, ways: make(map[*program]string)}
		e.programs = append(e.programs, p)
		members.Members = append(members.Members, child.New(kind, dir, addr, p))
	}
	if cfg.cluster { // the members of a cluster find one another
		return members, nil
	}
	for _, p := range e.programs {
		if err := e.connect(members.Network, p); err != nil {
			return nil, err
		}
	}
	return members, nil
}

// The method connect connects one member to each other member, and makes it follow the first member.
func (e *Ensemble) connect(network *child.Network, p *program) error {
	for i, other := range e.programs {
		if other == p {
			continue
		}
		from, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			return err
		}
		to, err := net.ResolveTCPAddr("tcp", other.addr)
		if err != nil {
			return err
		}
		p.ways[other] = from.Addr().String()
		network.Join(child.Way{From: slices.Index(e.programs, p) + 1, To: i + 1}, from, to)
	}
	if first := e.programs[0]; p != first {
		p.follow = first
	}
	return nil
}

// Promote makes member the primary, whatever the old primary does. The other connected members follow the new primary at once. An isolated
// member follows it after [Ensemble.Heal], a dead member after its restart, and a paused member after the next Heal. Until then, two
// servers regard themselves as the primary.
func (e *Ensemble) Promote(member *Server) error {
	leader := member.Program.(*program)
	leader.follow = nil
	if _, err := Ask(leader.addr, "REPLICAOF", "NO", "ONE"); err != nil {
		return err
	}
	for _, p := range e.programs {
		if p != leader && !e.isolated[p] {
			p.follow = leader
		}
	}
	e.tell()
	return nil
}

// The method tell makes all connected members follow their leader. A dead member follows the new primary only after its restart. On a busy
// machine, a member may not answer; then tell repeats the request for a while.
func (e *Ensemble) tell() {
	ctx, cancel := context.WithTimeout(context.Background(), 10*patience)
	defer cancel()
	for _, p := range e.programs {
		if p.follow == nil || e.isolated[p] {
			continue
		}
		if host, port, err := net.SplitHostPort(p.ways[p.follow]); err == nil {
			_ = child.Until(ctx, func() bool {
				_, err := Ask(p.addr, "REPLICAOF", host, port)
				return err == nil || errors.Is(err, syscall.ECONNREFUSED)
			})
		}
	}
}

// Isolate is like [child.Ensemble.Isolate]. Until Heal, member does not learn of a new primary.
func (e *Ensemble) Isolate(member *Server) {
	e.isolated[member.Program.(*program)] = true
	e.Ensemble.Isolate(member)
}

// Heal connects all members again. A primary that was replaced in the meantime follows the new primary. It discards the writes that it has
// accepted since it was replaced.
func (e *Ensemble) Heal() {
	leader := e.newest()
	clear(e.isolated)
	e.Ensemble.Heal()
	for _, p := range e.programs {
		if p != leader {
			p.follow = leader
		}
	}
	e.tell()
}

// The method newest returns the primary that is not isolated. If no member was promoted in place of an isolated primary, that primary
// remains the primary, and newest returns nil.
func (e *Ensemble) newest() *program {
	var leader *program
	for _, p := range e.programs {
		if p.follow == nil && (leader == nil || e.isolated[leader]) {
			leader = p
		}
	}
	return leader
}

// Failover kills the primary, promotes a replica, and starts the old primary again as a replica.
func (e *Ensemble) Failover(ctx context.Context) error {
	leader, err := e.Leader(ctx)
	if err != nil {
		return err
	}
	var followers []*child.Server // a replica that has just been started may not follow the primary yet
	if err := child.Until(ctx, func() bool { followers = e.Followers(); return len(followers) > 0 }); err != nil {
		return fmt.Errorf("redisserver: no replica to promote: %w", err)
	}
	leader.Kill()
	return errors.Join(e.Promote(followers[0]), leader.Restart(ctx))
}

// Dial connects to a server that regards itself as a primary. It takes the first such server in addrs.
func Dial(ctx context.Context, addrs []string) (net.Conn, error) {
	var errs []error
	for _, addr := range addrs {
		conn, err := dialPrimary(ctx, addr)
		if err == nil {
			return conn, nil
		}
		errs = append(errs, err)
	}
	return nil, errors.Join(errs...)
}

func dialPrimary(ctx context.Context, addr string) (net.Conn, error) {
	conn, err := new(net.Dialer).DialContext(ctx, "tcp", addr)
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	role, err := ask(ctx, conn, "ROLE")
	if err == nil && role[0] != "master" {
		err = fmt.Errorf("redisserver: %s is a %s", addr, role[0])
	}
	if err != nil {
		conn.Close()
		return nil, err
	}
	return conn, nil
}

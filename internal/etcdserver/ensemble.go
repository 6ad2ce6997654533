package etcdserver

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/tierlock/tierlock/internal/child"
)

// Ensemble is a set of servers that replicate one another. It takes this process to carry
// their words: an ensemble ends with it.
type Ensemble struct {
	*child.Ensemble
	network *child.Network
}

var kind = child.Kind{Package: "etcdserver", Taken: "address already in use"}

// StartEnsemble starts n servers and returns once each of them serves. Errors are those
// of [Start].
func StartEnsemble(ctx context.Context, n int, cfg Config) (*Ensemble, error) {
	etcd, err := find()
	if err != nil {
		return nil, err
	}
	if cfg.TickTime == 0 {
		cfg.TickTime = 50 * time.Millisecond
	}
	e := &Ensemble{}
	e.Ensemble, err = child.Start(ctx, func() (*child.Ensemble, error) {
		members, err := build(etcd, n, cfg)
		if err != nil {
			return nil, fmt.Errorf("etcdserver: %w", err)
		}
		e.network = members.Network.(*child.Network)
		return members, nil
	})
	if err != nil {
		return nil, err
	}
	return e, nil
}

func build(etcd string, n int, cfg Config) (_ *child.Ensemble, err error) {
	network := child.NewNetwork()
	e := &child.Ensemble{Network: network}
	defer func() {
		if err != nil {
			err = errors.Join(err, e.Stop())
		}
	}()
	var programs []*program
	var cluster []string
	for id := 1; id <= n; id++ {
		port, err := child.FreePort()
		if err != nil {
			return nil, err
		}
		dir, err := os.MkdirTemp("", "tierlock-etcd-")
		if err != nil {
			return nil, err
		}
		p := &program{etcd: etcd, cfg: cfg, dir: dir, id: id, addr: net.JoinHostPort("127.0.0.1", strconv.Itoa(port))}
		programs = append(programs, p)
		cluster = append(cluster, p.name()+"="+peerURL(id))
		e.Members = append(e.Members, child.New(kind, dir, p.addr, p))
	}
	for _, p := range programs {
		p.cluster = strings.Join(cluster, ",")
		for _, other := range programs {
			if other == p {
				continue
			}
			from, err := net.Listen("unix", filepath.Join(p.dir, peerSocket(other.id)))
			if err != nil {
				return nil, err
			}
			to := &net.UnixAddr{Net: "unix", Name: filepath.Join(other.dir, ownSocket)}
			network.Join(child.Way{From: p.id, To: other.id}, from, to)
		}
	}
	return e, nil
}

// Isolate cuts member off from the other members, and leaves the way to all of them open
// to clients. Connections between them stay open and mute, new ones get no answer. A
// member that is off serves nobody, and cannot be restarted, until [Ensemble.Heal].
func (e *Ensemble) Isolate(member *Server) {
	e.network.Isolate(slices.Index(e.Members, member) + 1)
}

// Heal puts all members in touch again; what was said meanwhile and not given up arrives.
func (e *Ensemble) Heal() { e.network.Heal() }

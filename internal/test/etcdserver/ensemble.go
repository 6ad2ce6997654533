package etcdserver

import (
	"context"
	"errors"
	"net"
	"path/filepath"
	"strings"
	"time"

	"github.com/tierlock/tierlock/internal/test/child"
)

// Ensemble is a set of servers that replicate one another. This process carries the traffic between them, so an ensemble ends with this
// process. Until Heal, an isolated member serves no requests, and cannot be restarted.
type Ensemble = child.Ensemble

var kind = child.Kind{Package: "etcdserver", Taken: "address already in use"}

// StartEnsemble starts n servers and returns once each of them serves requests. Errors are those of [Start].
func StartEnsemble(ctx context.Context, n int, cfg Config) (*Ensemble, error) {
	etcd, err := find()
	if err != nil {
		return nil, err
	}
	if cfg.TickTime == 0 {
		cfg.TickTime = 50 * time.Millisecond
	}
	return child.Start(ctx, func() (*Ensemble, error) { return build(etcd, n, cfg) })
}

func build(etcd string, n int, cfg Config) (_ *Ensemble, err error) {
	e := &Ensemble{Network: child.NewNetwork()}
	defer func() {
		if err != nil {
			err = errors.Join(err, e.Stop())
		}
	}()
	var programs []*program
	var cluster []string
	for id := 1; id <= n; id++ {
		dir, addr, err := child.Place("etcd", cfg.Port)
		if err != nil {
			return nil, err
		}
		p := &program{etcd: etcd, cfg: cfg, dir: dir, id: id, addr: addr}
		programs = append(programs, p)
		cluster = append(cluster, p.name()+"="+peerURL(id))
		e.Members = append(e.Members, child.New(kind, dir, addr, p))
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
			e.Network.Join(child.Way{From: p.id, To: other.id}, from, to)
		}
	}
	return e, nil
}

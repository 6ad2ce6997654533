package chaos

import (
	"context"
	"time"

	"github.com/tierlock/tierlock/internal/test/child"
	"github.com/tierlock/tierlock/stress/internal/clock"
	"github.com/tierlock/tierlock/stress/internal/store"
)

// failoverTimeout limits a fail-over. In a fail-over, the data of a server is copied.
const failoverTimeout = time.Minute

// serverFaults returns the faults of servers. Only one of them is injected at a time, so an ensemble keeps its majority.
func (n *nemesis) serverFaults(cluster *store.Cluster) []func(context.Context) {
	victims := map[string]func() *child.Server{
		"server": func() *child.Server { return cluster.Members[0] },
	}
	if len(cluster.Members) > 1 {
		victims = map[string]func() *child.Server{
			"follower": func() *child.Server { return n.one(cluster.Followers()) },
			"leader":   func() *child.Server { return n.leader(cluster) },
		}
	}
	var faults []func(context.Context)
	for _, role := range []string{"server", "follower", "leader"} { // not the map itself, whose order does not depend on the seed
		if victim, ok := victims[role]; ok {
			faults = append(faults,
				func(ctx context.Context) { n.killServer(ctx, role, victim()) },
				func(ctx context.Context) { n.stopServer(ctx, role, victim(), cluster) })
			if cluster.Isolate != nil && role != "server" {
				faults = append(faults, func(ctx context.Context) { n.isolateServer(ctx, role, victim(), cluster) })
			}
		}
	}
	if cluster.Replace != nil && len(cluster.Members) > 1 {
		faults = append(faults, func(context.Context) { n.replaceLeader(cluster) })
	}
	return faults
}

// The method leader returns the leader. If an election takes long, it returns nil.
func (n *nemesis) leader(cluster *store.Cluster) *child.Server {
	ctx, cancel := context.WithTimeout(context.Background(), n.timeout)
	defer cancel()
	leader, err := cluster.Leader(ctx)
	if err != nil {
		return nil
	}
	return leader
}

func (n *nemesis) one(servers []*child.Server) *child.Server {
	if len(servers) == 0 {
		return nil
	}
	return servers[n.random.IntN(len(servers))]
}

func (n *nemesis) killServer(ctx context.Context, role string, s *child.Server) {
	if s == nil {
		return
	}
	from := clock.Now()
	s.Kill()
	n.pause(ctx, 0, 1)
	n.faultLog.did("kill "+role, from, s.Restart(context.Background())) // the restart has its own time limit
}

func (n *nemesis) stopServer(ctx context.Context, role string, s *child.Server, cluster *store.Cluster) {
	if s == nil {
		return
	}
	from := clock.Now()
	longest := 1.2
	if role == "leader" && cluster.Revokes {
		longest = 0.5 // a pause of this length ends no lease, because each is renewed after a quarter of the timeout
	}
	err := s.Pause()
	n.pause(ctx, 0.1, longest)
	if err == nil {
		err = s.Resume()
	}
	n.faultLog.did("stop "+role, from, err)
}

// replaceLeader makes another server the leader. First it waits until all standbys follow the leader, because after an earlier fault no
// standby may be able to take over.
func (n *nemesis) replaceLeader(cluster *store.Cluster) {
	from := clock.Now()
	ctx, cancel := context.WithTimeout(context.Background(), failoverTimeout)
	defer cancel()
	err := child.Until(ctx, func() bool { return len(cluster.Followers()) == len(cluster.Members)-1 })
	if err == nil {
		err = cluster.Replace(ctx)
	}
	n.faultLog.did("replace leader", from, err)
}

// isolateServer cuts a server off from the other servers. Workers can still reach it.
func (n *nemesis) isolateServer(ctx context.Context, role string, s *child.Server, cluster *store.Cluster) {
	if s == nil {
		return
	}
	from := clock.Now()
	cluster.Isolate(s)
	n.pause(ctx, 0.1, 1.2)
	cluster.Heal()
	n.faultLog.did("cut "+role+" off", from, nil)
}

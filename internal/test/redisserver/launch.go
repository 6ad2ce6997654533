package redisserver

import (
	"net"
	"os/exec"
	"strconv"
)

// A program is the redis-server of one server, with its configuration.
type program struct {
	redis  string // the path of the program
	cfg    Config
	dir    string
	addr   string
	ways   map[*program]string // for each other member: the address at which this member reaches it
	follow *program            // the member that this member follows; nil for a primary
}

// Command returns the command that runs the redis-server.
func (p *program) Command() (*exec.Cmd, error) {
	host, port, err := net.SplitHostPort(p.addr)
	if err != nil {
		return nil, err
	}
	args := []string{
		"--bind", host,
		"--port", port,
		"--dir", p.dir,
		"--daemonize", "no",
		"--logfile", "",
		"--save", "",
		"--appendonly", "yes",
		"--appendfsync", p.sync(),
		"--maxmemory-policy", "noeviction",
		"--min-replicas-to-write", strconv.Itoa(p.cfg.MinReplicas),
		"--min-replicas-max-lag", strconv.Itoa(p.cfg.MaxLag),
		"--repl-diskless-sync", "yes",
		"--repl-diskless-sync-delay", "0",
		"--repl-ping-replica-period", "1",
	}
	if p.cfg.cluster {
		args = append(args, "--cluster-enabled", "yes", "--cluster-config-file", "nodes.conf")
	}
	if p.follow != nil {
		host, port, err := net.SplitHostPort(p.ways[p.follow])
		if err != nil {
			return nil, err
		}
		args = append(args, "--replicaof", host, port)
	}
	cmd := exec.Command(p.redis, args...)
	cmd.Dir = p.dir
	return cmd, nil
}

func (p *program) sync() string {
	if p.cfg.NoSync {
		return "no"
	}
	return "everysec"
}

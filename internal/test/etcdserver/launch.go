package etcdserver

import (
	"fmt"
	"os/exec"
	"path/filepath"
	"runtime"
	"strconv"
)

// program is the etcd of one server, with its configuration.
type program struct {
	etcd    string // the path of the program
	cfg     Config
	dir     string
	addr    string
	id      int    // 1-based place in the ensemble
	cluster string // the names and URLs of all members
}

// A member runs in its own directory, and listens for the other members on a socket there. For each other member it dials another socket
// in that directory, which leads to the network. The same URL is therefore a different socket for each member, and the network knows
// which member dials.
const ownSocket = "peers:0" // etcd wants the looks of host:port

func peerSocket(id int) string { return fmt.Sprintf("member%d:0", id) }
func peerURL(id int) string    { return "unix://" + peerSocket(id) }

// name is unique on this machine.
func (p *program) name() string { return filepath.Base(p.dir) }

// Command returns the etcd to run.
func (p *program) Command() (*exec.Cmd, error) {
	ms := p.cfg.TickTime.Milliseconds()
	cmd := exec.Command(p.etcd,
		"--name="+p.name(),
		"--data-dir=data",
		"--listen-client-urls=http://"+p.addr,
		"--advertise-client-urls=http://"+p.addr,
		"--listen-peer-urls=unix://"+ownSocket,
		"--initial-advertise-peer-urls="+peerURL(p.id),
		"--initial-cluster="+p.cluster,
		"--heartbeat-interval="+strconv.FormatInt(ms, 10),
		"--election-timeout="+strconv.FormatInt(10*ms, 10),
		"--unsafe-no-fsync="+strconv.FormatBool(p.cfg.NoSync),
		"--logger=zap", // etcd 3.4 has another one, too
		"--log-level=warn",
		"--log-outputs=stderr")
	cmd.Dir = p.dir
	// The environment is not inherited, since etcd takes options from it. On little tested architectures 3.4 requires this variable.
	cmd.Env = []string{"ETCD_UNSUPPORTED_ARCH=" + runtime.GOARCH}
	return cmd, nil
}

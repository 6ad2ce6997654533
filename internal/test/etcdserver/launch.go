package etcdserver

import (
	"fmt"
	"os/exec"
	"path/filepath"
	"runtime"
	"strconv"
)

// program is what a server runs.
type program struct {
	etcd    string // the path of the program
	cfg     Config
	dir     string
	addr    string
	id      int    // 1-based place in the ensemble
	cluster string // the names and URLs of all members
}

// A member listens to the others on a socket in its own directory, which it also runs in,
// and reaches each of them by another one there, behind which is the network. So the same
// URL is another socket for each member: the network knows who dials whom.
const ownSocket = "peers:0" // etcd wants the looks of host:port

func peerSocket(id int) string { return fmt.Sprintf("member%d:0", id) }
func peerURL(id int) string    { return "unix://" + peerSocket(id) }

// name is nobody else's on this machine.
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
	// Nothing of ours: etcd takes options from its environment. 3.4 asks for a word where
	// it was little tried.
	cmd.Env = []string{"ETCD_UNSUPPORTED_ARCH=" + runtime.GOARCH}
	return cmd, nil
}

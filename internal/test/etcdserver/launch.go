package etcdserver

import (
	"fmt"
	"os/exec"
	"path/filepath"
	"runtime"
	"strconv"
)

// A program is the etcd of one server, with its configuration.
type program struct {
	etcd    string // the path of the program
	cfg     Config
	dir     string
	addr    string
	id      int    // place in the ensemble, counted from 1
	cluster string // the names and URLs of all members
}

// A member runs in its own directory, and listens there on a socket for the other members. To reach another member, it dials a further
// socket in its own directory, which leads to the network. Therefore one URL means a different socket for each member, and the network
// knows which member dials.
const ownSocket = "peers:0" // etcd requires the form host:port

func peerSocket(id int) string { return fmt.Sprintf("member%d:0", id) }
func peerURL(id int) string    { return "unix://" + peerSocket(id) }

// The method name returns a name that is unique on this machine.
func (p *program) name() string { return filepath.Base(p.dir) }

// Command returns the command that runs etcd.
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
		"--logger=zap", // etcd 3.4 has a second logger
		"--log-level=warn",
		"--log-outputs=stderr")
	cmd.Dir = p.dir
	// The environment is not inherited, because etcd takes options from it. etcd 3.4 requires this variable on architectures on which it is
	// little tested.
	cmd.Env = []string{"ETCD_UNSUPPORTED_ARCH=" + runtime.GOARCH}
	return cmd, nil
}

package agent

import (
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
	"testing"

	"github.com/tierlock/tierlock/internal/test/need"
)

// roleOfMember makes a test process a client: its value is the socket.
const roleOfMember = "TIERLOCK_AGENT_TEST_MEMBER"

// A rule for a group also allows members that have another primary group.
func TestAllowFileCountsSupplementaryGroups(t *testing.T) {
	if socket := os.Getenv(roleOfMember); socket != "" {
		need.Get(net.Dial("unix", socket))(t)
		os.Exit(0)
	}
	if os.Getuid() != 0 {
		t.Skip("only root can give a process a group")
	}
	socket := filepath.Join(t.TempDir(), "agent.sock")
	l := need.Get(net.Listen("unix", socket))(t)
	defer l.Close()
	client := exec.Command(os.Args[0], "-test.run=^"+t.Name()+"$")
	client.Env = append(os.Environ(), roleOfMember+"="+socket)
	credential := &syscall.Credential{Gid: 20000}
	for group := range uint32(200) { // more than the agent asks for at first
		credential.Groups = append(credential.Groups, 30000+group)
	}
	client.SysProcAttr = &syscall.SysProcAttr{Credential: credential}
	need.OK(t, client.Start())
	conn := need.Get(listener{l}.Accept())(t)
	defer conn.Close()
	need.OK(t, client.Wait())
	for rule, allowed := range map[string]bool{"gid:20000": true, "gid:30000": true, "gid:30199": true, "gid:0": false, "gid:30200": false} {
		r := need.Get(parseRule([]string{rule, "/a"}))(t)
		need.Equal(t, rule+" allows it", r.allows(conn.(*peer), "/a"), allowed)
	}
}

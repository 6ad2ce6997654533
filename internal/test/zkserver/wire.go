package zkserver

import (
	"fmt"
	"io"
	"net"
	"strings"
	"time"
)

// commandTimeout bounds each query, because a paused server accepts a connection and never answers.
const commandTimeout = time.Second

// Serves reports whether the server answers with its configuration. The configuration names the data directory, so another program at the
// address does not pass.
func (p *program) Serves() bool {
	answer, err := Ask(p.addr(), "conf")
	return err == nil && strings.Contains(answer, "dataDir="+p.dataDir())
}

// Mode returns "standalone", "leader" or "follower". It returns an error if the server does not serve requests.
func (p *program) Mode() (string, error) { return report(p.addr(), "Mode: ") }

// Version returns the server's release, such as "3.8.0". It returns an error if the server does not serve requests.
func (p *program) Version() (string, error) { return Version(p.addr()) }

// Version returns the release of the server at addr, such as "3.8.0". It returns an error if the server does not serve requests.
func Version(addr string) (string, error) {
	version, err := report(addr, "Zookeeper version: ")
	return version[:strings.IndexAny(version+"-", "-,")], err // the build follows the release
}

// The function report asks the server at addr for its status, and returns the text after prefix.
func report(addr, prefix string) (string, error) {
	answer, err := Ask(addr, "srvr")
	if err != nil {
		return "", err
	}
	for line := range strings.Lines(answer) {
		if said, ok := strings.CutPrefix(line, prefix); ok {
			return strings.TrimSpace(said), nil
		}
	}
	return "", fmt.Errorf("zkserver: %s: %s", addr, strings.TrimSpace(answer))
}

// Ask sends one of ZooKeeper's four-letter commands to the server at addr and returns
// the answer.
func Ask(addr, command string) (string, error) {
	conn, err := net.DialTimeout("tcp", addr, commandTimeout)
	if err != nil {
		return "", err
	}
	defer conn.Close()
	if err := conn.SetDeadline(time.Now().Add(commandTimeout)); err != nil {
		return "", err
	}
	if _, err := io.WriteString(conn, command); err != nil {
		return "", err
	}
	answer, err := io.ReadAll(conn)
	return string(answer), err
}

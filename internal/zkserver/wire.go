package zkserver

import (
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"strconv"
	"strings"
	"time"
)

// commandTimeout bounds one question; a paused server accepts it and never answers.
const commandTimeout = time.Second

// Mode is "standalone", "leader" or "follower"; an error if the server does not serve.
func (s *Server) Mode() (string, error) { return s.report("Mode: ") }

// Version is the server's release, such as "3.8.0"; an error if the server does not serve.
func (s *Server) Version() (string, error) {
	version, err := s.report("Zookeeper version: ")
	release, _, _ := strings.Cut(version, "-") // behind it is the build
	return release, err
}

// report returns what the server says about itself after prefix.
func (s *Server) report(prefix string) (string, error) {
	answer, err := Ask(s.Addr(), "srvr")
	if err != nil {
		return "", err
	}
	for line := range strings.Lines(answer) {
		if said, ok := strings.CutPrefix(line, prefix); ok {
			return strings.TrimSpace(said), nil
		}
	}
	return "", fmt.Errorf("zkserver: %s: %s", s.Addr(), strings.TrimSpace(answer))
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

// freePort finds a port below the range from which Linux and macOS take the local ports
// of outgoing connections. From within that range, a client that dials a stopped server
// again and again can get the very port it dials, connect to itself, and so keep the
// server from coming back.
func freePort() (int, error) {
	const low, high, tries = 12000, 32000, 100
	for range tries {
		port := low + rand.IntN(high-low)
		l, err := net.Listen("tcp", net.JoinHostPort("127.0.0.1", strconv.Itoa(port)))
		if err == nil {
			return port, l.Close()
		}
	}
	return 0, errors.New("zkserver: no free port")
}

//go:build linux || darwin || freebsd

package command

import (
	"io/fs"
	"net"
	"os"
	"path/filepath"
	"sync"
	"syscall"
	"testing"

	"github.com/tierlock/tierlock/internal/test/need"
)

// stale leaves a socket as an agent that was killed does.
func stale(t *testing.T) (path string) {
	t.Helper()
	path = filepath.Join(t.TempDir(), "agent.sock")
	l := need.Get(net.Listen("unix", path))(t)
	l.(*net.UnixListener).SetUnlinkOnClose(false)
	need.OK(t, l.Close())
	return path
}

func TestSocketThatAnotherAgentIsAboutToReplaceIsLeftAlone(t *testing.T) {
	path := stale(t)
	before := need.Get(os.Lstat(path))(t)
	other := need.Get(lockSocket(path))(t) // the other agent has seen that no process listens
	_, err := openSocket(path, 0o600)
	need.WantMention(t, err, "another agent uses "+path)
	need.That(t, "the socket was replaced", os.SameFile(before, need.Get(os.Lstat(path))(t)))
	need.OK(t, other.Close())
	l := need.Get(openSocket(path, 0o600))(t)
	need.OK(t, l.Close())
	need.WantErr(t, "the socket after the end", lstat(path), fs.ErrNotExist)
}

func lstat(path string) error {
	_, err := os.Lstat(path)
	return err
}

// A program without the lock, such as another server, can listen at the path. Its socket is no stale one.
func TestSocketOfAnotherProgramIsNotReplaced(t *testing.T) {
	path := filepath.Join(t.TempDir(), "agent.sock")
	l := need.Get(net.Listen("unix", path))(t)
	defer l.Close()
	_, err := openSocket(path, 0o600)
	need.WantMention(t, err, "another process serves "+path)
	need.OK(t, lstat(path))
}

// A socket that refuses the agent for another reason, such as a full queue of connections, may be in use.
func TestSocketThatMayBeInUseIsNotReplaced(t *testing.T) {
	path := filepath.Join(t.TempDir(), "agent.sock")
	l := need.Get(net.ListenPacket("unixgram", path))(t) // streams cannot connect to it
	defer l.Close()
	_, err := openSocket(path, 0o600)
	need.WantMention(t, err, "connect: ")
	need.OK(t, lstat(path))
}

// Of agents that start at the same moment one serves the socket.
func TestOneOfSeveralAgentsServesASocket(t *testing.T) {
	for range 50 {
		path := stale(t)
		var mu sync.Mutex
		var served []net.Listener
		var all sync.WaitGroup
		for range 8 {
			all.Go(func() {
				if l, err := openSocket(path, 0o602); err == nil {
					mu.Lock()
					defer mu.Unlock()
					served = append(served, l)
				}
			})
		}
		all.Wait()
		need.Equal(t, "agents that serve the socket", len(served), 1)
		need.OK(t, need.Get(net.Dial("unix", path))(t).Close())
		need.Equal(t, "permissions", need.Get(os.Lstat(path))(t).Mode().Perm(), fs.FileMode(0o602))
		need.OK(t, served[0].Close())
	}
}

func TestSocketRefusesConnectionsUntilItHasItsPermissions(t *testing.T) {
	path := filepath.Join(t.TempDir(), "agent.sock")
	l := need.Get(listenAt(path, func() error {
		need.OK(t, lstat(path))
		_, err := net.Dial("unix", path)
		need.WantErr(t, "a connection before", err, syscall.ECONNREFUSED)
		return nil
	}))(t)
	defer l.Close()
	need.OK(t, need.Get(net.Dial("unix", path))(t).Close())
}

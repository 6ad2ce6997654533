package zkserver_test

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"testing"

	"github.com/tierlock/tierlock/internal/zkserver"
	"github.com/tierlock/tierlock/internal/zkserver/zkservertest"
)

const parentRole = "TIERLOCK_TEST_PARENT"

func TestMain(m *testing.M) {
	if os.Getenv(parentRole) != "" {
		beParent()
	}
	os.Exit(m.Run())
}

// beParent starts a server, says its pid, and waits to be killed.
func beParent() {
	s, err := zkserver.Start(context.Background(), zkserver.Config{NoSync: true})
	if err != nil {
		fmt.Println("0", err)
		os.Exit(1)
	}
	fmt.Println(s.Pid())
	select {}
}

func TestServerDiesWithItsParent(t *testing.T) {
	zkservertest.Start(t, zkserver.Config{NoSync: true}) // skips where the parent could not start one either
	dir := t.TempDir()                                   // takes the data that nobody is left to remove
	parent := exec.Command(os.Args[0])
	parent.Env = append(os.Environ(), parentRole+"=1", "TMPDIR="+dir)
	out, err := parent.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := parent.Start(); err != nil {
		t.Fatal(err)
	}
	var pid int
	line, err := bufio.NewReader(out).ReadString('\n')
	if _, scanErr := fmt.Sscan(line, &pid); err != nil || scanErr != nil || pid == 0 {
		t.Errorf("no server in the parent: %q, %v", line, err)
	}
	_ = parent.Process.Kill()
	_ = parent.Wait()
	if pid == 0 {
		return
	}
	defer func() { _ = syscall.Kill(pid, syscall.SIGKILL) }()
	eventually(t, "the server is gone", func() bool {
		return errors.Is(syscall.Kill(pid, 0), syscall.ESRCH) || isZombie(pid)
	})
}

// isZombie reports whether pid is dead and only its parent, which need not be a caring
// one, has not asked yet.
func isZombie(pid int) bool {
	status, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	return err == nil && strings.Contains(string(status), "State:\tZ")
}

package child_test

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
	"time"

	"github.com/tierlock/tierlock/internal/test/child"
	"github.com/tierlock/tierlock/internal/test/need"
)

const parentRole = "TIERLOCK_TEST_PARENT"

func TestMain(m *testing.M) {
	if os.Getenv(parentRole) != "" {
		beParent()
	}
	os.Exit(m.Run())
}

// beParent starts a server, prints its pid, and waits to be killed.
func beParent() {
	e, err := child.Start(context.Background(), func() (*child.Ensemble, error) {
		dir, err := os.MkdirTemp("", "tierlock-sleep-")
		return &child.Ensemble{Members: []*child.Server{child.New(child.Kind{}, dir, "", sleep{})}}, err
	})
	if err != nil {
		fmt.Println("0", err)
		os.Exit(1)
	}
	fmt.Println(e.Members[0].Pid())
	select {}
}

// The type sleep is a server that does nothing.
type sleep struct{ child.Program }

func (sleep) Command() (*exec.Cmd, error) { return exec.Command("sleep", "60"), nil }
func (sleep) Serves() bool                { return true }

func TestServerDiesWithItsParent(t *testing.T) {
	dir := t.TempDir() // the test removes the data, because the killed parent cannot
	parent := exec.Command(os.Args[0])
	parent.Env = append(os.Environ(), parentRole+"=1", "TMPDIR="+dir)
	out := need.Get(parent.StdoutPipe())(t)
	need.OK(t, parent.Start())
	var pid int
	line, err := bufio.NewReader(out).ReadString('\n')
	_, scanErr := fmt.Sscan(line, &pid)
	need.That(t, fmt.Sprintf("no server in the parent: %q, %v", line, err), err == nil && scanErr == nil && pid != 0)
	_ = parent.Process.Kill()
	_ = parent.Wait()
	if pid == 0 {
		return
	}
	defer func() { _ = syscall.Kill(pid, syscall.SIGKILL) }()
	ctx := need.Within(t, 20*time.Second)
	if err := child.Until(ctx, func() bool {
		status, _ := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid)) // a zombie has ended, too: its parent has only not read its exit status
		return errors.Is(syscall.Kill(pid, 0), syscall.ESRCH) || strings.Contains(string(status), "State:\tZ")
	}); err != nil {
		t.Errorf("the server outlives its parent: %v", err)
	}
}

// Package twin starts this program once more as a helper process, the twin. The first line of the twin's input is its task, and each
// further line is an order. The twin reports in JSON. It exits at the end of its input. The input also ends when the parent dies.
package twin

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"io"
	"os"
	"os/exec"

	"github.com/tierlock/tierlock/internal/test/child"
)

const roleEnv = "TIERLOCK_ROLE"

// Role returns the role of this process if it is a twin. Otherwise it returns "".
func Role() string { return os.Getenv(roleEnv) }

// Twin is the parent's side of a twin.
type Twin struct {
	Cmd *exec.Cmd
	In  io.WriteCloser // orders for the twin
	Out *json.Decoder  // reports of the twin
}

// Command returns the command that starts a twin with a role. The twin is killed when ctx ends. A Ctrl-C in the terminal does not reach
// the twin, only its parent.
func Command(ctx context.Context, role string, env ...string) (*exec.Cmd, error) {
	self, err := os.Executable()
	if err != nil {
		return nil, err
	}
	cmd := exec.CommandContext(ctx, self)
	cmd.Env = append(append(os.Environ(), roleEnv+"="+role), env...)
	cmd.Stderr = os.Stderr
	return cmd, child.Apart(cmd)
}

// Start starts a command that [Command] has returned. It does not report an error if the twin dies at once: then there are no reports.
func Start(cmd *exec.Cmd, task any) (*Twin, error) {
	in, err1 := cmd.StdinPipe()
	out, err2 := cmd.StdoutPipe()
	if err := errors.Join(err1, err2); err != nil {
		return nil, err
	}
	if err := cmd.Start(); err != nil {
		return nil, err
	}
	_ = json.NewEncoder(in).Encode(task)
	return &Twin{cmd, in, json.NewDecoder(out)}, nil
}

// Begin is called in a twin. It reads the task and returns a scanner for the orders, one on each line.
func Begin(task any) (orders *bufio.Scanner, err error) {
	orders = bufio.NewScanner(os.Stdin)
	orders.Buffer(nil, 1<<26) // a task may be long
	orders.Scan()
	return orders, errors.Join(orders.Err(), json.Unmarshal(orders.Bytes(), task))
}

// Say sends v to the parent, in a single write.
func Say(v any) error { return json.NewEncoder(os.Stdout).Encode(v) }

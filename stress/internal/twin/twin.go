// Package twin starts this program once more, as a helper process. A twin reads its task from the first line of its input and orders from
// the following ones, and reports in JSON. It exits at the end of its input, which also comes when the parent dies.
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

// Role returns the role of this process if it is a twin, and otherwise "".
func Role() string { return os.Getenv(roleEnv) }

// Twin is the parent's side of such a process.
type Twin struct {
	Cmd *exec.Cmd
	In  io.WriteCloser // for orders
	Out *json.Decoder  // what it says
}

// Command returns the command for a twin in a role. The end of ctx kills it. A Ctrl-C in the terminal reaches its parent only.
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

// Start starts a command from [Command]. If the twin dies at once, that shows because it reports nothing.
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

// Begin reads the task of this twin, and returns its orders, one a line.
func Begin(task any) (orders *bufio.Scanner, err error) {
	orders = bufio.NewScanner(os.Stdin)
	orders.Buffer(nil, 1<<26) // a task may be long
	orders.Scan()
	return orders, errors.Join(orders.Err(), json.Unmarshal(orders.Bytes(), task))
}

// Say writes v to the parent in a single write.
func Say(v any) error { return json.NewEncoder(os.Stdout).Encode(v) }

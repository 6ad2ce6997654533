// Package twin starts this program once more, to be a part of the work. A twin gets its task on the first line of its input and
// orders on others, and says what it has to say in JSON. The end of its input tells it to end, as it does when the parent dies.
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

// Role is what this process is as a twin, "" if people have started it.
func Role() string { return os.Getenv(roleEnv) }

// Twin is another process of this program, as its parent sees it.
type Twin struct {
	Cmd *exec.Cmd
	In  io.WriteCloser // for orders
	Out *json.Decoder  // what it says
}

// Command is for a twin in a role. The end of ctx kills it. A Ctrl-C in the terminal is for its parent alone.
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

// Start starts a command of [Command]. A twin that has died by then is found out because it says nothing.
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

// Begin reads the task of this twin, and returns the orders, a line each.
func Begin(task any) (orders *bufio.Scanner, err error) {
	orders = bufio.NewScanner(os.Stdin)
	orders.Buffer(nil, 1<<26) // a task may be long
	orders.Scan()
	return orders, errors.Join(orders.Err(), json.Unmarshal(orders.Bytes(), task))
}

// Say writes v in one piece, for the parent.
func Say(v any) error { return json.NewEncoder(os.Stdout).Encode(v) }

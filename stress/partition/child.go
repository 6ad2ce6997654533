package main

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"os"
	"os/exec"
)

// roleEnv tells a child of this program what it is.
const roleEnv = "TIERLOCK_PARTITION"

// process is another process of this program. It gets its task on its input, the end of
// which tells it to end, and so does the death of its parent. What it has to say comes
// in JSON.
type process struct {
	cmd *exec.Cmd
	in  io.Closer
	out *json.Decoder
}

// startChild starts cmd, a [childCommand].
func startChild(cmd *exec.Cmd, task any) (*process, error) {
	in, err1 := cmd.StdinPipe()
	out, err2 := cmd.StdoutPipe()
	if err := errors.Join(err1, err2); err != nil {
		return nil, err
	}
	cmd.Stderr = os.Stderr
	if err := cmd.Start(); err != nil {
		return nil, err
	}
	_ = json.NewEncoder(in).Encode(task) // a child that is gone says nothing, which is found out
	return &process{cmd, in, json.NewDecoder(out)}, nil
}

func childCommand(role string, env ...string) (*exec.Cmd, error) {
	self, err := os.Executable()
	if err != nil {
		return nil, err
	}
	cmd := exec.Command(self)
	cmd.Env = append(append(os.Environ(), roleEnv+"="+role), env...)
	return cmd, nil
}

// beChild reads the task of this process, and returns a context that ends with the input.
func beChild(task any) (context.Context, error) {
	if err := json.NewDecoder(os.Stdin).Decode(task); err != nil {
		return nil, err
	}
	ctx, cancel := context.WithCancel(context.Background())
	go func() {
		_, _ = io.Copy(io.Discard, os.Stdin)
		cancel()
	}()
	return ctx, nil
}

// say writes v in one piece, for the parent.
func say(v any) { _ = json.NewEncoder(os.Stdout).Encode(v) } // a parent that is gone does not listen

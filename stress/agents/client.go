package main

import (
	"context"
	"os/exec"

	"github.com/tierlock/tierlock/stress/internal/load"
	"github.com/tierlock/tierlock/stress/internal/twin"
)

// programs has the programs of the clients, one for each language. The clients of an agent use them in turn. A program does the work of a
// worker: see package load for its task, its reports and its journal.
var programs = []func(life context.Context) (*exec.Cmd, error){
	func(life context.Context) (*exec.Cmd, error) { return twin.Command(life, "worker") }, // Go
}

// client is the place of a client. If the client is killed, another one takes its place.
type client struct {
	task    load.Task // of the newest client in this place
	program func(life context.Context) (*exec.Cmd, error)
	child   *load.Child
	deaths  int64 // clients that have ended by themselves
}

// launch starts a client, and tells it to begin.
func (c *client) launch(life context.Context) error {
	c.task.Process += c.task.Procs
	cmd, err := c.program(life)
	if err != nil {
		return err
	}
	if c.child, err = load.StartProgram(cmd, c.task); err != nil {
		return err
	}
	load.Children{c.child}.Go()
	return nil
}

func (c *client) kill() {
	if !c.child.Kill() {
		c.deaths++
	}
}

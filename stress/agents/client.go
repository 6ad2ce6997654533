package main

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"

	"github.com/tierlock/tierlock/internal/test/child"
	"github.com/tierlock/tierlock/stress/internal/load"
	"github.com/tierlock/tierlock/stress/internal/twin"
)

// languages are those in which there are programs for clients.
var languages = []string{"go", "python", "node"}

// program starts a client in one language. A program does the work of a worker: see package load for its task, its reports and its journal.
type program struct {
	language string
	command  func(life context.Context) (*exec.Cmd, error)
}

// programs returns the programs of the languages. It returns an error if this machine cannot run one of them.
func (p plan) programs() (all []program, err error) {
	for _, language := range p.Languages {
		one := program{language, func(life context.Context) (*exec.Cmd, error) { return twin.Command(life, "worker") }}
		switch language {
		case "python":
			one.command, err = script("python3", "client.py")
		case "node":
			one.command, err = script("node", "client.js")
		}
		if err != nil {
			return nil, fmt.Errorf("clients in %s: %w (with -languages go, all clients are in Go)", language, err)
		}
		all = append(all, one)
	}
	return all, nil
}

// source is the directory of this file. The programs of the clients are there, because they need the directory clients of the repository.
var source = sync.OnceValues(func() (string, error) {
	dir, err := exec.Command("go", "list", "-f", "{{.Dir}}", "github.com/tierlock/tierlock/stress/agents").Output()
	return strings.TrimSpace(string(dir)), err
})

// script returns the command of a program that an interpreter runs.
func script(interpreter, file string) (command func(life context.Context) (*exec.Cmd, error), err error) {
	name, err := exec.LookPath(interpreter)
	if err != nil {
		return nil, err
	}
	dir, err := source()
	if err != nil {
		return nil, fmt.Errorf("find %s: %w", file, err)
	}
	return func(life context.Context) (*exec.Cmd, error) {
		cmd := exec.CommandContext(life, name, filepath.Join(dir, file))
		cmd.Env = append(os.Environ(), "PYTHONDONTWRITEBYTECODE=1")
		cmd.Stderr = os.Stderr
		return cmd, child.Apart(cmd)
	}, nil
}

// client is the place of a client. If the client is killed, another one takes its place.
type client struct {
	task    load.Task // of the newest client in this place
	program program
	child   *load.Child
	deaths  int64 // clients that have ended by themselves
}

// launch starts a client, and tells it to begin.
func (c *client) launch(life context.Context) error {
	c.task.Process += c.task.Procs
	cmd, err := c.program.command(life)
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

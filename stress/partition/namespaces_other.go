//go:build !linux

package main

import (
	"errors"
	"os/exec"
)

func intoNamespaces(*exec.Cmd) error { return errors.New("only Linux has network namespaces") }

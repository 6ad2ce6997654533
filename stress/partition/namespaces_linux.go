package main

import (
	"os"
	"os/exec"
	"syscall"
)

// intoNamespaces gives cmd, not yet started, a network and mounts of its own, and those
// who are not root a user namespace that allows it. The kernel takes all of it down with
// the last process inside. A Ctrl-C in the terminal is for the parent alone.
func intoNamespaces(cmd *exec.Cmd) error {
	attr := &syscall.SysProcAttr{Setpgid: true, Unshareflags: syscall.CLONE_NEWNET | syscall.CLONE_NEWNS}
	if os.Getuid() != 0 {
		attr.Unshareflags |= syscall.CLONE_NEWUSER
		attr.UidMappings = []syscall.SysProcIDMap{{ContainerID: 0, HostID: os.Getuid(), Size: 1}}
		attr.GidMappings = []syscall.SysProcIDMap{{ContainerID: 0, HostID: os.Getgid(), Size: 1}}
	}
	cmd.SysProcAttr = attr
	return nil
}

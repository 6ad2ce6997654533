package main

import (
	"os"
	"os/exec"
	"syscall"
)

// intoNamespaces gives cmd, not yet started, a network and mounts of its own. If the user is not root, it also gives it a user namespace,
// which allows that. The kernel removes all of it with the last process inside. A Ctrl-C in the terminal reaches the parent only.
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

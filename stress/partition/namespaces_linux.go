package main

import (
	"os"
	"os/exec"
	"syscall"
)

// intoNamespaces is called before cmd is started. It gives the process a network and mounts of its own. A user that is not root needs a
// user namespace for that, so the process gets one, too. The kernel removes all of these when the last process in them has ended. A
// Ctrl-C in the terminal reaches only the parent.
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

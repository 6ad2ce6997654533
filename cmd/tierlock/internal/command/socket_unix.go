//go:build linux || darwin || freebsd

package command

import (
	"errors"
	"io/fs"
	"net"
	"os"
	"syscall"
)

// lockSocket takes the kernel lock that belongs to a socket, until the file is closed. The file stays: an agent that removed it could
// remove one that another agent has locked meanwhile.
func lockSocket(path string) (lock *os.File, err error) {
	lock, err = os.OpenFile(path+".lock", os.O_CREATE|os.O_RDWR, 0o600)
	if err != nil {
		return nil, err
	}
	if err = syscall.Flock(int(lock.Fd()), syscall.LOCK_EX|syscall.LOCK_NB); err != nil {
		lock.Close()
		if errors.Is(err, syscall.EWOULDBLOCK) {
			return nil, usageError("-listen: another agent uses %s", path)
		}
		return nil, &fs.PathError{Op: "flock", Path: path + ".lock", Err: err}
	}
	return lock, nil
}

// refused reports whether no process listens at the socket. Other errors leave that open.
func refused(err error) bool { return errors.Is(err, syscall.ECONNREFUSED) }

// listenAt creates a socket, and calls protect, which sets its permissions. No process can connect before protect has returned: the socket
// does not listen yet. With net.Listen, the socket would have the permissions of the umask at first.
func listenAt(path string, protect func() error) (net.Listener, error) {
	fd, err := syscall.Socket(syscall.AF_UNIX, syscall.SOCK_STREAM, 0)
	if err != nil {
		return nil, os.NewSyscallError("socket", err)
	}
	syscall.CloseOnExec(fd)
	file := os.NewFile(uintptr(fd), path)
	defer file.Close() // the listener has a copy
	if err := syscall.Bind(fd, &syscall.SockaddrUnix{Name: path}); err != nil {
		return nil, &fs.PathError{Op: "bind", Path: path, Err: err}
	}
	if err := protect(); err != nil {
		os.Remove(path)
		return nil, err
	}
	const backlog = 4096 // the kernel reduces it to its own limit
	if err := syscall.Listen(fd, backlog); err != nil {
		os.Remove(path)
		return nil, os.NewSyscallError("listen", err)
	}
	l, err := net.FileListener(file)
	if err != nil {
		os.Remove(path)
		return nil, err
	}
	l.(*net.UnixListener).SetUnlinkOnClose(true)
	return l, nil
}

//go:build !linux && !darwin && !freebsd

package command

import (
	"errors"
	"net"
	"os"
	"syscall"
)

// lockSocket locks nothing: two agents that start at the same moment are not detected here.
func lockSocket(string) (lock *os.File, err error) { return nil, nil }

// refused reports whether no process listens at the socket. Other errors leave that open.
func refused(err error) bool {
	const ofWindows = syscall.Errno(10061) // WSAECONNREFUSED
	return errors.Is(err, syscall.ECONNREFUSED) || errors.Is(err, ofWindows)
}

// listenAt creates a socket, and calls protect, which sets its permissions.
func listenAt(path string, protect func() error) (net.Listener, error) {
	l, err := net.Listen("unix", path)
	if err != nil {
		return nil, err
	}
	if err := protect(); err != nil {
		l.Close()
		return nil, err
	}
	return l, nil
}

package agent

import (
	"bytes"
	"errors"
	"fmt"
	"net"
	"os"
	"strconv"
	"strings"
	"unsafe"

	"golang.org/x/sys/unix"
)

// identify asks the kernel which process opened the connection. For a process in another pid namespace the kernel answers 0.
func (p *peer) identify() {
	conn, ok := p.Conn.(*net.UnixConn)
	if !ok {
		return
	}
	raw, err := conn.SyscallConn()
	if err != nil {
		return
	}
	_ = raw.Control(func(fd uintptr) { // an error means that the connection is closed
		if cred, err := unix.GetsockoptUcred(int(fd), unix.SOL_SOCKET, unix.SO_PEERCRED); err == nil {
			p.pid, p.uid, p.gid = int(cred.Pid), int(cred.Uid), int(cred.Gid)
		}
	})
}

// groups asks the kernel for the supplementary groups that the process had when it opened the connection.
func (p *peer) groups() (all []uint32) {
	conn, ok := p.Conn.(*net.UnixConn)
	if !ok {
		return nil
	}
	raw, err := conn.SyscallConn()
	if err != nil {
		return nil
	}
	_ = raw.Control(func(fd uintptr) { // an error means that the connection is closed
		const size = 4 // bytes of a group
		for room := uint32(64); ; {
			all = make([]uint32, room)
			used := room * size // the kernel sets it, also to what it needs if there is no room
			_, _, errno := unix.Syscall6(unix.SYS_GETSOCKOPT, fd, unix.SOL_SOCKET, unix.SO_PEERGROUPS,
				uintptr(unsafe.Pointer(&all[0])), uintptr(unsafe.Pointer(&used)), 0)
			switch {
			case errno == 0:
				all = all[:used/size]
				return
			case errno != unix.ERANGE || used/size <= room:
				all = nil
				return
			}
			room = used / size
		}
	})
	return all
}

// watch calls died when the process of the client ends, and returns a function that ends the watch. The connection alone does not show it:
// a child of the process may have inherited the connection.
func (p *peer) watch(died func()) (unwatch func()) {
	if p.pid == 0 || p.pid == os.Getpid() {
		return func() {}
	}
	fd, err := p.open()
	switch {
	case errors.Is(err, unix.ESRCH):
		died()
		return func() {}
	case err != nil: // the kernel is older than 5.10
		return func() {}
	}
	file := os.NewFile(uintptr(fd), "process")
	raw, err := file.SyscallConn()
	if err != nil {
		file.Close()
		return func() {}
	}
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		err := raw.Read(func(fd uintptr) bool {
			n, err := unix.Poll([]unix.PollFd{{Fd: int32(fd), Events: unix.POLLIN}}, 0)
			return n > 0 || err != nil && !errors.Is(err, unix.EINTR)
		})
		if err == nil { // otherwise the file was closed
			died()
		}
	}()
	return func() {
		file.Close()
		<-ended
	}
}

// exits reports whether the process has ended, or is about to end. A process that dies closes its connections a little earlier than it
// ends, but later than the kernel sets the flag PF_EXITING.
func (p *peer) exits() bool {
	if p.pid == 0 || p.pid == os.Getpid() {
		return false
	}
	stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", p.pid))
	if err != nil { // it has ended, or the agent may not see it
		return errors.Is(unix.Kill(p.pid, 0), unix.ESRCH)
	}
	const flag, exiting = 6, 0x4 // the place of the flags behind the name of the program, which can contain anything
	fields := strings.Fields(string(stat[bytes.LastIndexByte(stat, ')')+1:]))
	if len(fields) <= flag {
		return false
	}
	flags, _ := strconv.ParseUint(fields[flag], 10, 64)
	return flags&exiting != 0
}

// open returns a descriptor of the process that becomes readable when the process ends.
func (p *peer) open() (fd int, err error) {
	raw, err := p.Conn.(*net.UnixConn).SyscallConn()
	if err != nil {
		return 0, err
	}
	if closed := raw.Control(func(socket uintptr) {
		fd, err = unix.GetsockoptInt(int(socket), unix.SOL_SOCKET, unix.SO_PEERPIDFD)
	}); closed != nil {
		return 0, closed
	}
	if err != nil && !errors.Is(err, unix.ESRCH) { // the kernel is older than 6.5
		fd, err = unix.PidfdOpen(p.pid, unix.PIDFD_NONBLOCK)
	}
	if err == nil {
		unix.CloseOnExec(fd)
		err = unix.SetNonblock(fd, true)
	}
	return fd, err
}

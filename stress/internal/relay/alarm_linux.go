package relay

import (
	"os"
	"time"

	"golang.org/x/sys/unix"
)

// alarm waits until a given time, as precisely as the kernel can. A timer of package time may be late by up to a millisecond if nothing
// else wakes the process.
type alarm struct {
	fd   int // of file; the method file.Fd would make reads block a thread
	file *os.File
}

func newAlarm() (*alarm, error) {
	fd, err := unix.TimerfdCreate(unix.CLOCK_MONOTONIC, unix.TFD_NONBLOCK|unix.TFD_CLOEXEC)
	if err != nil {
		return nil, os.NewSyscallError("timerfd_create", err)
	}
	return &alarm{fd, os.NewFile(uintptr(fd), "alarm")}, nil
}

func (a *alarm) wait(until time.Time) error {
	d := time.Until(until)
	if d <= 0 {
		return nil
	}
	once := unix.ItimerSpec{Value: unix.NsecToTimespec(d.Nanoseconds())}
	if err := unix.TimerfdSettime(a.fd, 0, &once, nil); err != nil {
		return os.NewSyscallError("timerfd_settime", err)
	}
	_, err := a.file.Read(make([]byte, 8))
	return err
}

func (a *alarm) Close() error { return a.file.Close() }

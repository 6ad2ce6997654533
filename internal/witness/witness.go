//go:build unix

// Package witness lets a test run several processes and see from outside what they did: they write
// down when they work, and a lock of the kernel, not the one under test, says whether two of them did so at once.
// Unix only.
package witness

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"time"
)

// A Witness is the directory in which the processes of a test write down what they do.
type Witness string

// An Entry says that a process began to work.
type Entry struct {
	Key     string // of what at most one may do at a time
	Slot    int64  // which of its turns this is; the process says so
	Pid     int
	At      time.Time
	Overlap bool // another process was at it
}

// Work calls work, which only one process at a time may do for key, and writes it down. Key must be usable
// as the name of a file.
func (w Witness) Work(key string, slot int64, work func()) error {
	guard, err := os.OpenFile(filepath.Join(string(w), key+".lock"), os.O_CREATE|os.O_RDWR, 0o600)
	if err != nil {
		return err
	}
	defer guard.Close() // which ends its lock
	locked := syscall.Flock(int(guard.Fd()), syscall.LOCK_EX|syscall.LOCK_NB)
	if locked != nil && !errors.Is(locked, syscall.EWOULDBLOCK) {
		return locked
	}
	if err := w.write(Entry{key, slot, os.Getpid(), time.Now(), locked != nil}); err != nil {
		return err
	}
	work()
	return nil
}

func (w Witness) file() string { return filepath.Join(string(w), "entries") }

func (w Witness) write(e Entry) error {
	file, err := os.OpenFile(w.file(), os.O_CREATE|os.O_WRONLY|os.O_APPEND, 0o600)
	if err != nil {
		return err
	}
	_, err = fmt.Fprintln(file, e.Key, e.Slot, e.Pid, e.At.UnixNano(), e.Overlap) // one write: lines do not mix
	return errors.Join(err, file.Close())
}

// Entries returns what was written so far, in that order.
func (w Witness) Entries() (entries []Entry, err error) {
	text, err := os.ReadFile(w.file())
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		return nil, err
	}
	for line := range strings.Lines(string(text)) {
		var e Entry
		var at int64
		if _, err := fmt.Sscan(line, &e.Key, &e.Slot, &e.Pid, &at, &e.Overlap); err != nil {
			return nil, fmt.Errorf("witness: %q: %w", line, err)
		}
		e.At = time.Unix(0, at)
		entries = append(entries, e)
	}
	return entries, nil
}

package main

import (
	"encoding/json"
	"errors"
	"io"
	"os"

	"github.com/tierlock/tierlock/slots"
	"github.com/tierlock/tierlock/stress/internal/clock"
	"github.com/tierlock/tierlock/stress/internal/evidence"
)

// entry is a line of the log. It says what happened to a slot in a process.
type entry struct {
	What  slots.Kind // an event of package slots, or one of the kinds below
	PID   int
	At    clock.Instant
	Count int // of Skipped
	slots.Slot
}

// These kinds are entries of the job. At is the time of a check that has found that the process has the lock.
const (
	began slots.Kind = "began"
	ended slots.Kind = "ended" // the job is about to return nil
	cut   slots.Kind = "cut"   // the lock was lost after At
)

// A runLog is the name of the file in which the processes record their runs. Only flock(2) protects the file.
type runLog string

func (l runLog) locked(do func(*os.File) error) error {
	file, err := os.OpenFile(string(l), os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		return err
	}
	defer file.Close() // also unlocks the file
	if err := evidence.Lock(file); err != nil {
		return err
	}
	return do(file)
}

func (l runLog) write(e entry) error {
	line, err := json.Marshal(e)
	if err != nil {
		return err
	}
	return l.locked(func(file *os.File) error {
		end, err := file.Seek(0, io.SeekEnd)
		if err == nil {
			_, err = file.WriteAt(append(line, '\n'), end)
		}
		return err
	})
}

func (l runLog) read() (all []entry, err error) {
	return all, l.locked(func(file *os.File) error {
		for decoder := json.NewDecoder(file); ; {
			var e entry
			if err := decoder.Decode(&e); errors.Is(err, io.EOF) {
				return nil
			} else if err != nil {
				return err
			}
			all = append(all, e)
		}
	})
}

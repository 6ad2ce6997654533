package evidence

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"sync/atomic"
	"unsafe"
)

// Judging is how a register finds out that two sections overlap.
type Judging int

const (
	// ByCount has each section count itself in a word of shared memory. It costs next
	// to nothing, so that an empty section is one, but a process that is killed in its
	// section stays counted.
	ByCount Judging = iota
	// ByKernel has each section take a kernel lock without waiting. The kernel lets go
	// for a process that was killed.
	ByKernel
)

// Register is the oracle of one lock path. It trusts nothing but the memory and the
// kernel of this machine.
//
// It is a file with a counter, the highest fencing token seen, and the process that
// brought it, read at the start of a section and written at its end: whatever is lost
// there was not protected by the lock. Moreover it knows whether somebody is inside
// when a section starts: then two sections overlap.
type Register struct {
	judging Judging
	name    string
	record  *record // the file itself, mapped: sections are serial, so a read and a write call in each would set the pace
	// idle keeps an open file for the next section. Kernel locks belong to open file
	// descriptions, so goroutines of one process that are in the section at once need
	// one each; with a correct lock a single one goes round.
	idle chan *os.File
	mine atomic.Int64 // instant at which this process's last section here ended, 0 before
}

// record is the content of a register's file.
type record struct {
	counter atomic.Int64
	token   atomic.Int64
	process atomic.Int64
	inside  atomic.Int64 // sections, when judging by count
	left    atomic.Int64 // instant at which the last section ended
	leaver  atomic.Int64 // its process, 0 before the first
}

// NewRegister opens the register of a path, and makes it if it is new. It stays mapped
// until the process ends.
func NewRegister(dir string, path int, how Judging) (*Register, error) {
	r := &Register{judging: how, name: filepath.Join(dir, fmt.Sprint("register-", path)), idle: make(chan *os.File, 1)}
	file, err := r.open()
	if err != nil {
		return nil, err
	}
	r.idle <- file
	const size = int(unsafe.Sizeof(record{}))
	if err := file.Truncate(int64(size)); err != nil {
		return nil, err
	}
	memory, err := share(file, size)
	if err != nil {
		return nil, fmt.Errorf("map %s: %w", r.name, err)
	}
	r.record = (*record)(unsafe.Pointer(&memory[0]))
	return r, nil
}

// NewRegisters opens those of all paths.
func NewRegisters(dir string, paths int, how Judging) ([]*Register, error) {
	registers := make([]*Register, paths)
	for i := range registers {
		var err error
		if registers[i], err = NewRegister(dir, i, how); err != nil {
			return nil, err
		}
	}
	return registers, nil
}

func (r *Register) open() (*os.File, error) {
	return os.OpenFile(r.name, os.O_RDWR|os.O_CREATE, 0o600)
}

// Section is one critical section, from Enter to Leave or Abandon.
type Section struct {
	register *Register
	file     *os.File // with the kernel's lock, unless overlap; nil when judging by count
	counter  int64    // as found at Enter
	Overlap  bool     // somebody else was inside at Enter
}

// Enter begins a section.
func (r *Register) Enter() (s Section, err error) {
	s.register = r
	if r.judging == ByCount {
		s.Overlap = r.record.inside.Add(1) > 1
	} else if err := s.lock(); err != nil {
		return s, err
	}
	s.counter = r.record.counter.Load()
	return s, nil
}

func (s *Section) lock() (err error) {
	select {
	case s.file = <-s.register.idle:
	default:
		if s.file, err = s.register.open(); err != nil {
			return err
		}
	}
	if s.Overlap, err = tryLock(s.file); err != nil {
		return errors.Join(err, s.file.Close())
	}
	return nil
}

// Leave counts the section and reports whether its token went back: a token must exceed
// that of any other process before, and in one process, which may pass its node on, it
// must not fall. Tokens of zero do not count.
func (s Section) Leave(token, process int64) (regression bool, err error) {
	record := s.register.record
	last := record.token.Load()
	regression = token != 0 && (token < last || token == last && process != record.process.Load())
	if token > last {
		record.token.Store(token)
		record.process.Store(process)
	}
	record.counter.Store(s.counter + 1)
	return regression, s.Abandon()
}

// Abandon ends the section without counting it.
func (s Section) Abandon() error {
	if s.file == nil {
		s.register.record.inside.Add(-1)
		return nil
	}
	if !s.Overlap {
		if err := unlock(s.file); err != nil {
			return errors.Join(err, s.file.Close())
		}
	}
	select {
	case s.register.idle <- s.file:
		return nil
	default:
		return s.file.Close()
	}
}

// Counted is the number of sections that the register has counted.
func (r *Register) Counted() int64 { return r.record.counter.Load() }

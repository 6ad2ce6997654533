package evidence

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"sync/atomic"
	"unsafe"

	"github.com/tierlock/tierlock/internal/test/oracle"
	"github.com/tierlock/tierlock/stress/internal/rule"
)

// Judging is how a register detects that two sections overlap.
type Judging int

const (
	// ByCount lets each section add its weight to a word of shared memory. That costs almost nothing, and an empty section stays empty. But
	// if a process is killed in its section, the weight stays in the sum.
	ByCount Judging = iota
	// ByKernel lets each section take kernel locks without waiting. If a process is killed, the kernel releases its locks.
	ByKernel
)

// Register detects overlapping sections of one lock path. It relies only on the memory and the kernel of this machine, and not on the
// store.
//
// The register is a file. It contains a counter, the highest fencing tokens, and the process whose section was the last exclusive one. An
// exclusive section reads the counter at its start and writes it at its end: a lost update shows that the lock did not protect the section.
// A shared section checks at its end that the counter has not changed. At the start of a section, the register also knows which others are
// in progress, and whether they leave enough room.
type Register struct {
	judging Judging
	rule    rule.Rule
	name    string
	record  *record // the file itself, mapped: system calls in each section would take most of the time
	// idle keeps open files for later sections. A kernel lock belongs to an open file description. Therefore goroutines of one process that
	// are in sections at the same time need different open files. A mutex uses the same file again and again.
	idle chan *latch
	mine atomic.Int64 // instant at which the last section of this process ended on this path, 0 if there was none
}

// record is the content of a register's file.
type record struct {
	counter atomic.Int64
	token   atomic.Int64 // the highest token of a section that was alone
	process atomic.Int64
	shared  atomic.Int64 // the highest token of any other section
	inside  atomic.Int64 // the sum of the weights of the present sections, with ByCount
	left    atomic.Int64 // instant at which the last section ended
	leaver  atomic.Int64 // the process of that section, 0 before the first one
}

func registerName(dir string, path int) string {
	return filepath.Join(dir, fmt.Sprint("register-", path))
}

// NewRegister opens the register of a path. It creates the file if there is none. The file stays mapped until the process ends.
func NewRegister(dir string, path int, r rule.Rule, how Judging) (*Register, error) {
	g := &Register{judging: how, rule: r, name: registerName(dir, path), idle: make(chan *latch, 1)}
	file, err := os.OpenFile(g.name, os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		return nil, err
	}
	defer file.Close()
	const size = int(unsafe.Sizeof(record{}))
	if err := file.Truncate(int64(size)); err != nil {
		return nil, err
	}
	memory, err := share(file, size)
	if err != nil {
		return nil, fmt.Errorf("map %s: %w", g.name, err)
	}
	g.record = (*record)(unsafe.Pointer(&memory[0]))
	return g, nil
}

// NewRegisters opens the registers of all paths.
func NewRegisters(dir string, paths int, r rule.Rule, how Judging) ([]*Register, error) {
	registers := make([]*Register, paths)
	for i := range registers {
		var err error
		if registers[i], err = NewRegister(dir, i, r, how); err != nil {
			return nil, err
		}
	}
	return registers, nil
}

// Section is one critical section, from Enter to Leave or Abandon.
type Section struct {
	register *Register
	weight   int64
	latch    *latch // nil with ByCount
	counter  int64  // the value of the counter at Enter
	Overlap  bool   // the other sections left too little room at Enter
}

// Enter begins a section. Its weight has to be one that the rule allows.
func (r *Register) Enter(weight int64) (s Section, err error) {
	s.register, s.weight = r, weight
	if r.judging == ByCount {
		s.Overlap = !r.rule.Fits(r.record.inside.Add(weight))
	} else if err := s.lock(); err != nil {
		return s, err
	}
	s.counter = r.record.counter.Load()
	return s, nil
}

func (s *Section) lock() (err error) {
	select {
	case s.latch = <-s.register.idle:
	default:
		if s.latch, err = openLatch(s.register.name, s.register.rule.Room); err != nil {
			return err
		}
	}
	if s.Overlap, err = s.latch.lock(s.weight); err != nil {
		return errors.Join(err, s.latch.close())
	}
	return nil
}

// Leave ends the section, and counts it if it was exclusive. The result regression says that the token was lower than an earlier one. The
// result torn says that an exclusive section was counted since Enter.
func (s Section) Leave(token, process int64) (regression, torn bool, err error) {
	r, alone := s.register.record, s.register.rule.Alone(s.weight)
	mark := oracle.Mark{Token: token, Process: process}
	regression = r.tokens(process).Judge(mark, alone) != nil
	r.note(mark, alone)
	if alone {
		r.counter.Store(s.counter + 1)
	} else {
		torn = r.counter.Load() != s.counter
	}
	return regression, torn, s.Abandon()
}

// tokens returns the tokens that the register has seen. It has only one word for the tokens of shared sections. Their highest token counts
// as a token of the process that asks.
func (r *record) tokens(process int64) oracle.Tokens {
	alone := oracle.Mark{Token: r.token.Load(), Process: r.process.Load()}
	return oracle.Tokens{Seen: alone, Alone: alone}.With(oracle.Mark{Token: r.shared.Load(), Process: process}, false)
}

// note records the token of a section. An exclusive section must have a token that no other section has.
func (r *record) note(m oracle.Mark, alone bool) {
	if alone && m.Token > r.token.Load() {
		r.token.Store(m.Token)
		r.process.Store(m.Process)
	}
	for seen := r.shared.Load(); !alone && m.Token > seen && !r.shared.CompareAndSwap(seen, m.Token); {
		seen = r.shared.Load()
	}
}

// Abandon ends the section without counting it.
func (s Section) Abandon() error {
	if s.latch == nil {
		s.register.record.inside.Add(-s.weight)
		return nil
	}
	if err := s.latch.unlock(); err != nil {
		return errors.Join(err, s.latch.close())
	}
	select {
	case s.register.idle <- s.latch:
		return nil
	default:
		return s.latch.close()
	}
}

// Counted returns the number of sections that the register has counted.
func (r *Register) Counted() int64 { return r.record.counter.Load() }

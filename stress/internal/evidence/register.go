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
	// ByCount makes each section count itself in a word of shared memory. Counting costs next to nothing, so an empty section stays empty.
	// But a process that is killed in its section stays counted.
	ByCount Judging = iota
	// ByKernel makes each section take kernel locks without waiting. The kernel releases the locks of a process that was killed.
	ByKernel
)

// Register detects overlapping sections of one lock path. It relies only on the memory and the kernel of this machine, and not on the
// store.
//
// It is a file with a counter, the highest fencing tokens, and the process whose section last had the lock alone. Sections that are alone
// read the counter at their start and write it at their end: a lost update shows that the lock did not protect them. Shared sections
// check that the counter has not changed when they leave. The register also knows whether there is room when a section starts. If not,
// the section overlaps another one.
type Register struct {
	judging Judging
	rule    rule.Rule
	name    string
	record  *record // the file itself, mapped: a read and a write call in each section would set the pace
	// idle keeps open files for later sections. A kernel lock belongs to an open file description, so goroutines of one process that are in
	// sections at the same time need files of their own. With a mutex the same file is used again and again.
	idle chan *latch
	mine atomic.Int64 // instant at which this process's last section here ended, 0 before
}

// record is the content of a register's file.
type record struct {
	counter atomic.Int64
	token   atomic.Int64 // of sections that were alone
	process atomic.Int64
	shared  atomic.Int64 // token of the others
	inside  atomic.Int64 // weights of the sections, when judging by count
	left    atomic.Int64 // instant at which the last section ended
	leaver  atomic.Int64 // its process, 0 before the first
}

// NewRegister opens the register of a path, and creates it if it does not exist. The file stays mapped until the process ends.
func NewRegister(dir string, path int, r rule.Rule, how Judging) (*Register, error) {
	g := &Register{judging: how, rule: r, name: filepath.Join(dir, fmt.Sprint("register-", path)), idle: make(chan *latch, 1)}
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
	latch    *latch // nil when judging by count
	counter  int64  // as found at Enter
	Overlap  bool   // there was no room at Enter
}

// Enter begins a section of a weight that the rule allows.
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

// Leave ends the section. If the section was alone, Leave counts it, and reports whether its token was lower than an earlier one, and
// whether another section that should have been alone has counted itself meanwhile.
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

// tokens returns the tokens that the register has seen. It keeps a single word for those of shared sections, so the highest of them
// counts as a token of the asking process.
func (r *record) tokens(process int64) oracle.Tokens {
	alone := oracle.Mark{Token: r.token.Load(), Process: r.process.Load()}
	return oracle.Tokens{Seen: alone, Alone: alone}.With(oracle.Mark{Token: r.shared.Load(), Process: process}, false)
}

// note records a token. A section that is alone may not meet any other with its token.
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

package evidence

import (
	"net"
	"net/rpc"
	"path/filepath"
	"sync"

	"github.com/tierlock/tierlock/internal/test/oracle"
)

// Fence is a service outside the workers, with two registers for each lock path. Owners that are alone in the lock increment the
// registers, and others read them twice. The fenced register refuses a write whose token is lower than the highest that it has seen, and
// a read whose token is lower than that of any writer. The unfenced register accepts every write, and so shows what the fence prevents.
// Accesses without a token are always accepted. Only such readers may read alone.
type Fence struct {
	mu    sync.Mutex // guards the cells
	cells []cell
}

// NewFence returns a fence for a number of paths.
func NewFence(paths int) *Fence { return &Fence{cells: make([]cell, paths)} }

type cell struct {
	tokens oracle.Tokens // that were admitted
	inside int64         // the last process to begin that has not ended yet, 0 if none

	fenced, accepted  int64 // value, and number of writes
	unfenced, written int64

	refused     int64
	regressions int64 // accesses of another process with the same token
	torn        int64 // second reads that differ
}

// Access is a read or a write under a lock. All accesses but the first read have the values that were read before.
type Access struct {
	Path             int
	Token, Process   int64
	Shared           bool // it never writes, and others may be beside it
	Fenced, Unfenced int64
}

// Answer is the answer of a register.
type Answer struct {
	Refused          bool
	Fenced, Unfenced int64
}

// Read returns the values. It raises the fence; otherwise a late owner could still write between the read and the write of its successor.
func (f *Fence) Read(a Access, answer *Answer) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	c := &f.cells[a.Path]
	*answer = Answer{Refused: !c.admit(a), Fenced: c.fenced, Unfenced: c.unfenced}
	if !answer.Refused {
		c.inside = a.Process
	}
	return nil
}

// Write increments the values that were read before.
func (f *Fence) Write(a Access, answer *Answer) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	c := &f.cells[a.Path]
	c.written++
	c.unfenced = a.Unfenced + 1
	c.leave(a)
	if c.admit(a) {
		c.accepted++
		c.fenced = a.Fenced + 1
	} else {
		answer.Refused = true
	}
	return nil
}

// Check reads again.
func (f *Fence) Check(a Access, answer *Answer) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	c := &f.cells[a.Path]
	c.leave(a)
	answer.Refused = !c.admit(a)
	if !answer.Refused && c.fenced != a.Fenced {
		c.torn++
	}
	return nil
}

func (c *cell) leave(a Access) {
	if c.inside == a.Process {
		c.inside = 0
	}
}

func (c *cell) admit(a Access) bool {
	mark := oracle.Mark{Token: a.Token, Process: a.Process}
	if c.tokens.Stale(mark, !a.Shared) {
		c.refused++
		return false
	}
	if c.tokens.Judge(mark, !a.Shared) != nil {
		c.regressions++
	}
	c.tokens = c.tokens.With(mark, !a.Shared)
	return true
}

// Inside lists the processes that are in a section, as far as the accesses show.
func (f *Fence) Inside() (processes []int64) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, c := range f.cells {
		if c.inside != 0 {
			processes = append(processes, c.inside)
		}
	}
	return processes
}

// Total returns the sums over all paths.
func (f *Fence) Total() (t Total) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, c := range f.cells {
		t.Accepted += c.accepted
		t.Refused += c.refused
		t.Regressions += c.regressions
		t.Torn += c.torn
		t.LostFenced += distance(c.accepted, c.fenced)
		t.LostUnfenced += distance(c.written, c.unfenced)
	}
	return t
}

// Total counts what a fence has seen: writes, refused accesses, tokens that two processes used, reads whose value changed before the
// second read, and lost updates of either register.
type Total struct{ Accepted, Refused, Regressions, Torn, LostFenced, LostUnfenced int64 }

func distance(a, b int64) int64 { return max(a-b, b-a) }

const fenceService = "Fence"

func fenceAddr(dir string) string { return filepath.Join(dir, "fence") }

// Serve answers the workers until the returned function is called.
func (f *Fence) Serve(dir string) (stop func(), err error) {
	server := rpc.NewServer()
	if err := server.RegisterName(fenceService, f); err != nil {
		return nil, err
	}
	l, err := net.Listen("unix", fenceAddr(dir))
	if err != nil {
		return nil, err
	}
	go func() {
		for {
			conn, err := l.Accept()
			if err != nil {
				return
			}
			go server.ServeConn(conn) // ends with the worker
		}
	}()
	return func() { _ = l.Close() }, nil
}

// Gate is a worker's connection to a fence.
type Gate struct{ client *rpc.Client }

// DialFence connects with the fence that is served in dir.
func DialFence(dir string) (*Gate, error) {
	client, err := rpc.Dial("unix", fenceAddr(dir))
	if err != nil {
		return nil, err
	}
	return &Gate{client}, nil
}

// Read is [Fence.Read].
func (g *Gate) Read(a Access, answer *Answer) error {
	return g.client.Call(fenceService+".Read", a, answer)
}

// Write is [Fence.Write].
func (g *Gate) Write(a Access, answer *Answer) error {
	return g.client.Call(fenceService+".Write", a, answer)
}

// Check is [Fence.Check].
func (g *Gate) Check(a Access, answer *Answer) error {
	return g.client.Call(fenceService+".Check", a, answer)
}

// Close ends the connection.
func (g *Gate) Close() error { return g.client.Close() }

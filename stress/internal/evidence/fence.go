package evidence

import (
	"cmp"
	"errors"
	"net"
	"net/rpc"
	"net/rpc/jsonrpc"
	"path/filepath"
	"sync"

	"github.com/tierlock/tierlock/internal/test/oracle"
	"github.com/tierlock/tierlock/stress/internal/clock"
)

// Fence is a service in a process other than the workers. It has two registers for each lock path. Owners that exclude all others increment
// the registers; other owners read them twice. The fenced register refuses a write if it has seen a higher token, and a read if a writer
// had a higher token. The unfenced register accepts every write, and thereby shows what would happen without a fence. An access without a
// token is always accepted; only readers may have none.
type Fence struct {
	mu    sync.Mutex // guards the fields below
	cells []cell
	begun map[int64]int64         // accepted first reads, by process
	left  map[int64]clock.Instant // when the connections of processes had ended
}

// NewFence returns a fence for the given number of paths.
func NewFence(paths int) *Fence {
	return &Fence{cells: make([]cell, paths), begun: map[int64]int64{}, left: map[int64]clock.Instant{}}
}

type cell struct {
	tokens oracle.Tokens // the tokens of accepted accesses
	inside int64         // the process that began last and has not ended yet, 0 if there is none

	fenced, accepted  int64 // value of the fenced register, and number of writes to it
	unfenced, written int64

	refused     int64
	regressions int64 // accesses with a token that another process has used
	torn        int64 // second reads that differ from the first
}

// Access is a read or a write under a lock. Fenced and Unfenced are the values that the first read has returned; in the first read
// itself they are not set.
type Access struct {
	Path             int
	Token, Process   int64
	Agent            int64 // the agent whose token it is; 0 if it is the process's own
	Shared           bool  // the owner never writes, and may share the lock with others
	Fenced, Unfenced int64
}

// Answer is the answer of a register, or of a visitor.
type Answer struct {
	Refused          bool
	Overlap          bool // another section had the kernel's lock
	Fenced, Unfenced int64
}

// Read returns the values of the registers. It also raises the fence to the token. Otherwise a late owner could write after its successor
// has read, and before that successor writes.
func (f *Fence) Read(a Access, answer *Answer) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	c := &f.cells[a.Path]
	*answer = Answer{Refused: !c.admit(a), Fenced: c.fenced, Unfenced: c.unfenced}
	if !answer.Refused {
		c.inside = a.Process
		f.begun[a.Process]++
	}
	return nil
}

// Write sets each register to one more than the value that was read before.
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

// Check reads a second time.
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
	mark := oracle.Mark{Token: a.Token, Process: cmp.Or(a.Agent, a.Process)}
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

// Inside returns the processes that are in a section, according to their accesses.
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

// Begun returns how many sections a process has begun, according to its accesses.
func (f *Fence) Begun(process int) int64 {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.begun[int64(process)]
}

// Died takes the instants at which processes were known to be dead. If the connection of a process to the fence ended later, and with it
// the kernel's lock that the fence had for the process, Died replaces the instant.
func (f *Fence) Died(deaths map[int]clock.Instant) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for process, at := range deaths {
		deaths[process] = max(at, f.left[int64(process)])
	}
}

// Total returns the counts, summed up over all paths.
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

// Total has the counts of a fence: accepted writes, refused accesses, tokens that two processes have used, values that changed between two
// reads, and the lost updates of each register.
type Total struct{ Accepted, Refused, Regressions, Torn, LostFenced, LostUnfenced int64 }

func distance(a, b int64) int64 { return max(a-b, b-a) }

const fenceService = "Fence"

func fenceAddr(dir string) string { return filepath.Join(dir, "fence") }

// visitor is a connection to a fence. Its methods are those of the fence, and two more for programs in languages without file locks.
type visitor struct {
	*Fence
	dir     string
	latch   *latch // of the present section; nil if there is none
	process int64  // of the last section
}

// Enter takes the kernel's lock of a mutex for the section that begins. The end of the connection also ends the section.
func (v *visitor) Enter(a Access, answer *Answer) (err error) {
	v.process = a.Process
	if v.latch, err = openLatch(registerName(v.dir, a.Path), oracle.Mutex); err == nil {
		answer.Overlap, err = v.latch.lock(1)
	}
	return err
}

// Leave releases the kernel's lock. Closing the file is not enough: a child that this process is starting has it open for a moment, too.
func (v *visitor) Leave(Access, *Answer) error {
	l := v.latch
	v.latch = nil
	return errors.Join(l.unlock(), l.close())
}

// serve answers the requests of a connection, which come one after the other. It returns at the end of the connection.
func (v *visitor) serve(conn net.Conn) {
	server := rpc.NewServer()
	if err := server.RegisterName(fenceService, v); err == nil {
		server.ServeCodec(jsonrpc.NewServerCodec(conn))
	}
	if v.latch != nil {
		_ = v.Leave(Access{}, nil)
	}
	v.mu.Lock()
	defer v.mu.Unlock()
	v.left[v.process] = clock.Now()
}

// Serve answers the requests of the workers until stop is called. The protocol is JSON-RPC 1.0.
func (f *Fence) Serve(dir string) (stop func(), err error) {
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
			go (&visitor{Fence: f, dir: dir}).serve(conn) // ends when the worker closes its connection
		}
	}()
	return func() { _ = l.Close() }, nil
}

// Gate is a worker's connection to a fence.
type Gate struct{ client *rpc.Client }

// DialFence connects to the fence that Serve serves in dir.
func DialFence(dir string) (*Gate, error) {
	client, err := jsonrpc.Dial("unix", fenceAddr(dir))
	if err != nil {
		return nil, err
	}
	return &Gate{client}, nil
}

// Read calls [Fence.Read] over the connection.
func (g *Gate) Read(a Access, answer *Answer) error {
	return g.client.Call(fenceService+".Read", a, answer)
}

// Write calls [Fence.Write] over the connection.
func (g *Gate) Write(a Access, answer *Answer) error {
	return g.client.Call(fenceService+".Write", a, answer)
}

// Check calls [Fence.Check] over the connection.
func (g *Gate) Check(a Access, answer *Answer) error {
	return g.client.Call(fenceService+".Check", a, answer)
}

// Close ends the connection.
func (g *Gate) Close() error { return g.client.Close() }

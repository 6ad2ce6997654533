package sim

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/go-zookeeper/zk"

	"github.com/tierlock/tierlock/internal/fault"
	"github.com/tierlock/tierlock/tier"
	"github.com/tierlock/tierlock/zktest"
)

// A trial is one case. What its callers see goes into its log; what must be so wherever it is played is checked.
type trial struct {
	*testing.T
	play    func(*trial)
	request request
	mishap  mishap[*line]

	backend  *backend
	operator *zk.Conn
	path     string // of the lock
	data     string // of a node that is written under it
	line     *line  // the one whose request meets the mishap
	fault    *fault.Armed
	beaten   *fault.Armed // hit by the first heartbeat that is answered after that
	log      []string
	token    int64 // of the newest grant
}

// on plays the case and returns its log.
func (tr trial) on(t *testing.T, b *backend) []string {
	t.Helper()
	tr.T, tr.backend = t, b
	tr.path = "/" + strings.NewReplacer("/", "-", " ", "-", ",", "").Replace(t.Name())
	tr.data = tr.path + "-data"
	tr.operator = b.operator(t)
	for _, path := range []string{tr.path, tr.data} {
		if _, err := tr.operator.Create(path, nil, 0, zk.WorldACL(zk.PermAll)); err != nil {
			tr.Fatal(err)
		}
	}
	tr.play(&tr)
	tr.await("the mishap", func() bool { return closed(tr.fault.Hit) })
	tr.line.ends.Wait()
	tr.await("nothing is left", func() bool { return len(tr.queue()) == 0 })
	probe, err := tr.operator.Create(tr.path+"/", nil, zk.FlagSequence, zk.WorldACL(zk.PermAll))
	tr.note("nodes before %s, %s", strings.TrimPrefix(probe, tr.path), sight(err))
	return tr.log
}

func (tr *trial) queue() []string {
	tr.Helper()
	children, _, err := tr.operator.Children(tr.path)
	if err != nil {
		tr.Fatal(err)
	}
	return children
}

func (tr *trial) note(format string, args ...any) {
	tr.log = append(tr.log, fmt.Sprintf(format, args...))
}

// sight is as much of an error as a caller tells apart.
func sight(err error) string {
	if err == nil {
		return "ok"
	}
	for _, known := range []error{context.Canceled, tier.ErrLost, tier.ErrReleased, zk.ErrConnectionClosed} {
		if errors.Is(err, known) {
			return known.Error()
		}
	}
	return err.Error()[strings.LastIndex(err.Error(), ": ")+1:] // before it come names of nodes, which are never the same
}

func (tr *trial) await(what string, holds func() bool) {
	tr.Helper()
	for deadline := time.Now().Add(patience); !holds(); time.Sleep(10 * time.Millisecond) {
		if time.Now().After(deadline) {
			tr.Fatalf("not within %v: %s; so far %v", patience, what, tr.log)
		}
	}
}

// A party is a process and its line. Strict: each release gives the node up.
type party struct {
	*line
	process
	name string
}

func (tr *trial) join(name string) *party {
	tr.Helper()
	p := &party{line: tr.backend.newLine(), name: name}
	ctx, cancel := context.WithTimeout(tr.Context(), patience)
	defer cancel()
	servers := slices.Repeat([]string{p.addr}, 9) // the library pauses for a second at the end of its list
	if err := p.start(ctx, way{servers, p.dial}, nil, strict); err != nil {
		tr.Fatal(err)
	}
	tr.Cleanup(func() { p.locks.Close() })
	return p
}

// arm lets the party's next request of the kind, about such a path, meet the mishap.
func (tr *trial) arm(p *party, about func(path string) bool) {
	f := tr.mishap.fault(tr.request, p.line)
	f.About = func(f *zktest.Frame) bool { return tr.request.is(f) && (about == nil || about(f.Path)) }
	tr.line, tr.fault = p.line, p.faults.Arm(f)
	tr.beaten = p.faults.Arm(fault.Fault{Op: "multi", At: zktest.Reply, About: func(*zktest.Frame) bool {
		return closed(tr.fault.Hit)
	}})
	tr.Cleanup(p.ends.Wait) // also when the case has failed
	if tr.request == connect {
		p.Cut()
		<-tr.fault.Hit
	}
}

// A bid is an acquisition that a party makes.
type bid struct {
	acquisition
	by string
}

func (tr *trial) bid(p *party) *bid {
	b := &bid{by: p.name}
	b.begin(tr.Context(), p.locks.Mutex(tr.path), func() {})
	tr.Cleanup(b.cancel)
	return b
}

// queued is a bid whose node is the second in the queue.
func (tr *trial) queued(p *party) *bid {
	tr.Helper()
	b := tr.bid(p)
	tr.await(p.name+" to queue", func() bool { return len(tr.queue()) == 2 })
	return b
}

// settle waits for the result of a bid and checks that tokens grow.
func (tr *trial) settle(b *bid) *bid {
	tr.Helper()
	tr.await(b.by+"'s result", func() bool { return closed(b.done) })
	tr.note("%s acquires: %s", b.by, sight(b.err))
	if b.err == nil {
		if b.hold.Token() <= tr.token {
			tr.Errorf("token %d after %d", b.hold.Token(), tr.token)
		}
		tr.token = b.hold.Token()
	}
	return b
}

func (tr *trial) release(b *bid) {
	if b.hold != nil {
		tr.note("%s releases: %s", b.by, sight(b.hold.Release()))
	}
}

// granted is settle for a bid that must not fail.
func (tr *trial) granted(b *bid) *bid {
	tr.Helper()
	if tr.settle(b); b.err != nil {
		tr.Fatalf("%s: %v", b.by, b.err)
	}
	return b
}

// giveUp waits for the mishap, and cancels what it met if that is not to wait for a late answer.
func (tr *trial) giveUp(cancel context.CancelFunc) {
	tr.Helper()
	tr.await("the mishap", func() bool { return closed(tr.fault.Hit) })
	if tr.mishap.late {
		cancel()
	}
}

// apart checks that nobody else has what the holder still holds.
func (tr *trial) apart(holder, other *bid) {
	tr.Helper()
	if closed(other.done) && other.err == nil && holder.hold.Err() == nil {
		tr.Fatalf("%s holds what %s holds", other.by, holder.by)
	}
}

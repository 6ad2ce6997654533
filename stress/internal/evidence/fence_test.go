package evidence

import (
	"fmt"
	"testing"
	"time"

	"github.com/tierlock/tierlock/internal/test/need"
	"github.com/tierlock/tierlock/stress/internal/clock"
	"github.com/tierlock/tierlock/stress/internal/rule"
)

func TestFenceRefusesLowerTokens(t *testing.T) {
	f := NewFence(1)
	late := readBy(t, f, 5, 1)
	need.List(t, "after the read of process 1, inside are", f.Inside(), 1)
	// The successor has read, and has not written yet. A late write of its predecessor must be refused already.
	next := readBy(t, f, 6, 2)
	need.That(t, "write with a token below that of a reader: accepted", writeBack(t, f, 5, 1, late).Refused)
	need.That(t, "write with the highest token: refused", !writeBack(t, f, 6, 2, next).Refused)
	need.Empty(t, "inside after all wrote", f.Inside())
	need.That(t, "read with a lower token: accepted", readBy(t, f, 5, 1).Refused)
	total := f.Total()
	need.That(t, fmt.Sprintf("got %+v, want 1 accepted, 2 refused, nothing lost", total),
		total.Accepted == 1 && total.Refused == 2 && total.LostFenced == 0 && total.Regressions == 0)
	need.Equal(t, "unfenced: lost updates", total.LostUnfenced, 1)
}

func TestOverlapWithValidTokensLosesUpdates(t *testing.T) {
	f := NewFence(2)
	a, b := readBy(t, f, 5, 1), readBy(t, f, 5, 1)
	writeBack(t, f, 5, 1, a)
	writeBack(t, f, 5, 1, b)
	total := f.Total()
	need.That(t, fmt.Sprintf("two sections at once: got %+v, want one lost update", total), total.LostFenced == 1 && total.LostUnfenced == 1)
}

func TestTokenOfTwoProcessesIsARegression(t *testing.T) {
	f := NewFence(1)
	readBy(t, f, 5, 1)
	readBy(t, f, 5, 1)
	need.Equal(t, "one process: regressions", f.Total().Regressions, 0)
	readBy(t, f, 5, 2)
	need.Equal(t, "two processes: regressions", f.Total().Regressions, 1)
}

func TestFenceServesOtherProcesses(t *testing.T) {
	dir := t.TempDir()
	f := NewFence(1)
	stop := need.Get(f.Serve(dir))(t)
	defer stop()
	gate := need.Get(DialFence(dir))(t)
	defer gate.Close()
	var answer Answer
	err := gate.Write(Access{Token: 5, Process: 1, Fenced: 41}, &answer)
	need.Must(t, fmt.Sprintf("write: %v, %+v", err, answer), err == nil && !answer.Refused)
	need.OK(t, gate.Read(Access{Token: 5, Process: 1}, &answer))
	need.Equal(t, "read", answer.Fenced, 42)
}

// A program without file locks of its own excludes sections, and is excluded, by way of the fence.
func TestFenceTakesTheKernelsLockForAProgram(t *testing.T) {
	dir := t.TempDir()
	f := NewFence(1)
	stop := need.Get(f.Serve(dir))(t)
	defer stop()
	r := need.Get(NewRegister(dir, 0, rule.Mutex(), ByKernel))(t)
	meets := func() bool {
		s := need.Get(r.Enter(1))(t)
		defer func() { need.OK(t, s.Abandon()) }()
		return s.Overlap
	}
	gate := need.Get(DialFence(dir))(t)
	enter := func(a Access, answer *Answer) error { return gate.client.Call(fenceService+".Enter", a, answer) }
	need.That(t, "the first one: overlap", !ask(t, enter, Access{Process: 7}).Overlap)
	need.That(t, "a section beside it: no overlap", meets())
	need.OK(t, gate.client.Call(fenceService+".Leave", Access{}, &Answer{}))
	s := need.Get(r.Enter(1))(t)
	need.That(t, "beside a section: no overlap", !s.Overlap && ask(t, enter, Access{Process: 7}).Overlap)
	need.OK(t, s.Abandon())
	need.OK(t, gate.client.Call(fenceService+".Leave", Access{}, &Answer{}))
	need.That(t, "once more: overlap", !ask(t, enter, Access{Process: 7}).Overlap)
	before := clock.Now()
	need.OK(t, gate.Close())
	deaths := map[int]clock.Instant{7: 1}
	for f.Died(deaths); deaths[7] < before; f.Died(deaths) {
		time.Sleep(time.Millisecond)
	}
	need.That(t, "after the end of the connection: overlap", !meets())
}

// The function ask makes an access and requires that it returns no error.
func ask(t *testing.T, access func(Access, *Answer) error, a Access) (answer Answer) {
	t.Helper()
	need.OK(t, access(a, &answer))
	return answer
}

func readBy(t *testing.T, f *Fence, token, process int64) Answer {
	t.Helper()
	return ask(t, f.Read, Access{Token: token, Process: process})
}

func writeBack(t *testing.T, f *Fence, token, process int64, based Answer) Answer {
	t.Helper()
	return ask(t, f.Write, Access{Token: token, Process: process, Fenced: based.Fenced, Unfenced: based.Unfenced})
}

func TestFenceLetsReadersInBetweenWriters(t *testing.T) {
	f := NewFence(1)
	written := readBy(t, f, 5, 1)
	writeBack(t, f, 5, 1, written)
	later := readShared(t, f.Read, 8, 3, Answer{})
	first := readShared(t, f.Read, 7, 2, Answer{})
	need.Must(t, fmt.Sprintf("readers after a writer, in any order: got %+v, %+v", first, later),
		!first.Refused && !later.Refused && first.Fenced == 1)
	need.That(t, "a late write beside readers: accepted", writeBack(t, f, 5, 1, written).Refused)
	need.That(t, "a reader without a writer after it: refused", !readShared(t, f.Check, 7, 2, first).Refused)
	need.That(t, "another one: refused", !readShared(t, f.Check, 8, 3, later).Refused)
	need.Equal(t, "torn reads", f.Total().Torn, 0)
	need.Equal(t, "regressions", f.Total().Regressions, 0)
	next := readBy(t, f, 9, 1)
	need.That(t, "a late read after the next writer: admitted", readShared(t, f.Check, 8, 3, later).Refused)
	writeBack(t, f, 9, 1, next)
	need.That(t, "a late reader: admitted", readShared(t, f.Read, 8, 3, Answer{}).Refused)
}

func TestReaderBesideAWriterSeesTheWrite(t *testing.T) {
	for _, token := range []int64{5, 0} { // without a token, every access is accepted
		f := NewFence(1)
		was := readShared(t, f.Read, token, 2, Answer{})
		writeBack(t, f, 5, 2, readBy(t, f, 5, 2))
		need.That(t, "a reader of a torn register: refused", !readShared(t, f.Check, token, 2, was).Refused)
		need.Equal(t, fmt.Sprintf("torn reads with token %d", token), f.Total().Torn, 1)
	}
}

// readShared makes the second read of a reader. was is the answer to its first read.
func readShared(t *testing.T, access func(Access, *Answer) error, token, process int64, was Answer) Answer {
	t.Helper()
	return ask(t, access, Access{Token: token, Process: process, Shared: true, Fenced: was.Fenced})
}

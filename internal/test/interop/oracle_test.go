package interop_test

import (
	"encoding/binary"
	"errors"
	"os"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"github.com/tierlock/tierlock/internal/test/need"
)

// An oracle checks locks without any knowledge of ZooKeeper. It counts in a file how many units of a lock are taken. A mutex has one unit,
// and a semaphore has one for each permit. In a reader/writer lock, a reader takes one unit and a writer takes all. The oracle changes the
// file under a POSIX lock, which Java, Python and Go all support. Such a lock belongs to a process, and therefore the goroutines of a
// process need another lock among themselves. The file also has a counter that only holders of all units write, protected by nothing but
// the lock under test.
type oracle struct {
	file *os.File // opened once, because closing any descriptor of a file drops the POSIX locks of the process on that file
	mine sync.Mutex
	time time.Duration // duration of a critical section
	all  int64
}

// The file contains these numbers. Each takes 8 bytes, and these are the offsets.
const (
	counterAt = 8 * iota
	takenAt
	mostAt // most units taken at the same time by holders that did not want all
	oracleSize
)

func openOracle(name string, section time.Duration, all int64) (*oracle, error) {
	file, err := os.OpenFile(name, os.O_RDWR, 0)
	return &oracle{file: file, time: section, all: all}, err
}

// newOracle creates the file of an oracle.
func newOracle(t *testing.T) (name string) {
	t.Helper()
	name = filepath.Join(t.TempDir(), "counter")
	need.OK(t, os.WriteFile(name, make([]byte, oracleSize), 0o600))
	return name
}

// The method enter takes units. It reports whether more units are taken than there are.
func (o *oracle) enter(units int64) (overlap bool, err error) {
	taken, err := o.take(units)
	return taken > o.all, err
}

func (o *oracle) leave(units int64) error {
	_, err := o.take(-units)
	return err
}

// The method stay waits for the duration of a critical section. It reports whether the counter shows another holder.
func (o *oracle) stay(units int64) (overlap bool, err error) {
	before, err1 := o.get(counterAt)
	time.Sleep(o.time)
	if units == o.all {
		return false, errors.Join(err1, o.put(counterAt, before+1))
	}
	after, err2 := o.get(counterAt)
	return after != before, errors.Join(err1, err2)
}

func (o *oracle) take(units int64) (taken int64, err error) {
	o.mine.Lock()
	defer o.mine.Unlock()
	if err := lockFile(o.file); err != nil {
		return 0, err
	}
	defer func() { err = errors.Join(err, unlockFile(o.file)) }()
	before, err1 := o.get(takenAt)
	taken = before + units
	err = errors.Join(err1, o.put(takenAt, taken))
	if most, err2 := o.get(mostAt); units != o.all && most < taken {
		err = errors.Join(err, err2, o.put(mostAt, taken))
	}
	return taken, err
}

func (o *oracle) get(offset int64) (int64, error) {
	var value [8]byte
	_, err := o.file.ReadAt(value[:], offset)
	return int64(binary.BigEndian.Uint64(value[:])), err
}

func (o *oracle) put(offset, value int64) error {
	_, err := o.file.WriteAt(binary.BigEndian.AppendUint64(nil, uint64(value)), offset)
	return err
}

// A record is the final state of an oracle.
type record struct{ alone, most int64 }

func recorded(t *testing.T, name string) record {
	t.Helper()
	o := need.Get(openOracle(name, 0, 0))(t)
	defer o.file.Close()
	alone, err1 := o.get(counterAt)
	taken, err2 := o.get(takenAt)
	most, err3 := o.get(mostAt)
	need.WantErr(t, "the end", errors.Join(err1, err2, err3), nil)
	need.Equal(t, "units taken at the end", taken, 0)
	return record{alone, most}
}

// An intruder takes units without having acquired the lock, as if the lock were broken. The drivers have to notice that.
func TestEveryDriverNoticesAnIntruder(t *testing.T) {
	t.Parallel()
	const all = 3
	e := newEnsemble(t)
	for _, d := range launch(t, e, sessionTimeout, "curator-rw", "kazoo-rw", "zk", "tier") {
		for _, c := range []struct {
			intruder int64
			turn     string
			overlaps bool
		}{
			{intruder: 1, turn: "3", overlaps: true},  // a reader beside a writer
			{intruder: 1, turn: "1", overlaps: false}, // a reader beside a reader
			{intruder: 3, turn: "1", overlaps: true},  // a writer beside a reader
			{intruder: 3, turn: "3", overlaps: true},
		} {
			name := newOracle(t)
			leave := intrude(t, name, all, c.intruder)
			a := d.do(t, "contend 0 1 1 %s %d %s", name, all, c.turn)
			if want := map[bool]int64{true: 1}[c.overlaps]; a.Turns != 1 || a.Overlaps != want {
				t.Errorf("%s, with %d taken by an intruder, takes %s of %d: got %+v, want one turn, and %d overlaps",
					d.kind, c.intruder, c.turn, all, a, want)
			}
			leave()
			if most := recorded(t, name).most; !c.overlaps && most != 2 {
				t.Errorf("%d units were taken at a time at most, want 2", most)
			}
		}
	}
}

// intrude takes units in the file of an oracle as an intruder.
func intrude(t *testing.T, name string, all, units int64) (leave func()) {
	t.Helper()
	o := need.Get(openOracle(name, 0, all))(t)
	if overlap, err := o.enter(units); overlap || err != nil {
		t.Fatal(overlap, err)
	}
	return func() {
		need.WantErr(t, "leave", o.leave(units), nil)
		o.file.Close()
	}
}

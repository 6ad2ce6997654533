package interop_test

import (
	"encoding/binary"
	"errors"
	"os"
	"path/filepath"
	"sync"
	"testing"
	"time"
)

// An oracle knows nothing of ZooKeeper. It is a counter in a file that only the lock
// under test protects, and a POSIX lock on that file, taken without waiting for each
// visit, that tells whether it does. POSIX locks are what Java, Python and Go have in
// common; they belong to the process, so a lock of the goroutines stands in front.
type oracle struct {
	file   *os.File // opened once: closing any descriptor of a file drops the locks of the process on it
	inside sync.Mutex
}

func openOracle(name string) (*oracle, error) {
	file, err := os.OpenFile(name, os.O_RDWR, 0)
	return &oracle{file: file}, err
}

// newOracle makes the file of an oracle.
func newOracle(t *testing.T) (name string) {
	t.Helper()
	name = filepath.Join(t.TempDir(), "counter")
	if err := os.WriteFile(name, make([]byte, 8), 0o600); err != nil {
		t.Fatal(err)
	}
	return name
}

// visit goes through one critical section and reports whether somebody else was inside.
func (o *oracle) visit() (overlap bool, err error) {
	alone := o.inside.TryLock()
	mine := alone && lockFile(o.file) == nil
	var counter [8]byte
	_, err1 := o.file.ReadAt(counter[:], 0)
	time.Sleep(time.Millisecond) // long enough for somebody else to come, if anybody can
	binary.BigEndian.PutUint64(counter[:], binary.BigEndian.Uint64(counter[:])+1)
	_, err2 := o.file.WriteAt(counter[:], 0)
	if mine {
		err = unlockFile(o.file)
	}
	if alone {
		o.inside.Unlock()
	}
	return !mine, errors.Join(err1, err2, err)
}

// counted is how many visits the oracle in the file has seen.
func counted(t *testing.T, name string) int64 {
	t.Helper()
	counter, err := os.ReadFile(name)
	if err != nil {
		t.Fatal(err)
	}
	return int64(binary.BigEndian.Uint64(counter))
}

func TestEveryDriverNoticesAnIntruder(t *testing.T) {
	e := newEnsemble(t)
	for _, d := range launch(t, e, sessionTimeout, "curator", "kazoo", "zk", "tier") {
		name := newOracle(t)
		intruder, err := openOracle(name)
		if err != nil {
			t.Fatal(err)
		}
		if err := lockFile(intruder.file); err != nil {
			t.Fatal(err)
		}
		a := d.do(t, "contend 1000 1 %s", name)
		if a.Turns == 0 || a.Overlaps != a.Turns {
			t.Errorf("%s, with somebody always inside: got %+v, want an overlap in each turn", d.kind, a)
		}
		intruder.file.Close()
	}
}

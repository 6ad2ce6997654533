package interop_test

import (
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/tierlock/tierlock/internal/waittest"
)

// A writer of ours that goes on as a reader keeps Curator's writers out, and in time lets Curator's readers in: it becomes
// a node that they know, with its place in the queue.
func TestDowngradeOfOursIsOneForCurator(t *testing.T) {
	t.Parallel()
	e := newEnsemble(t)
	drivers := launch(t, e, sessionTimeout, "curator-write", "curator-read")
	writer, reader := drivers[0], drivers[1]
	rw := e.registry(t).RWMutex(e.path)

	hold := acquire(t, rw.Writer())
	node := e.children(t)[0]
	read, err := rw.Reader().Acquire(hold.Context(t.Context()))
	if err != nil {
		t.Fatal(err)
	}
	waittest.Release(t, hold)
	writer.excluded(t)
	if names := e.children(t); !slices.Equal(names, []string{node}) {
		t.Errorf("a downgrade that nobody waits for: got %q, want %q", names, node)
	}

	begun := time.Now()
	reader.acquire(t)
	t.Logf("Curator reads %v after it came", time.Since(begun).Round(time.Millisecond))
	number := node[strings.LastIndex(node, "_")+1:]
	if !slices.ContainsFunc(e.children(t), func(name string) bool { return strings.HasSuffix(name, "__READ__"+number) }) {
		t.Errorf("nobody reads with the number of %s: %q", node, e.children(t))
	}
	writer.excluded(t)
	waittest.Release(t, acquire(t, e.registry(t).RWMutex(e.path).Reader()))

	reader.release(t)
	writer.excluded(t)
	writer.order(t, "acquire")
	e.awaitChildren(t, 2)
	if err := read.Err(); err != nil {
		t.Error(err)
	}
	waittest.Release(t, read)
	writer.answer(t)
	writer.release(t)
	e.awaitChildren(t, 0)
}

// Before 5.5 Curator downgrades to a reader at the tail of the queue, behind the writers that wait (CURATOR-621): the next
// one gets in beside it, whoever it is.
func TestDowngradeOfCuratorHoldsFrom55On(t *testing.T) {
	t.Parallel()
	e := newEnsemble(t)
	for _, kind := range []string{"curator-write", "tier-write"} {
		drivers := launch(t, e, sessionTimeout, "curator-write", kind)
		reader, writer := drivers[0], drivers[1]
		reader.acquire(t)
		writer.order(t, "acquire")
		e.awaitChildren(t, 2)
		reader.do(t, "downgrade")
		switch {
		case curatorBefore55(t):
			writer.answer(t)
			reader.release(t)
		default:
			time.Sleep(300 * time.Millisecond) // for the writer to look at the queue
			if len(writer.answers) > 0 {
				t.Errorf("%s writes beside a reader of Curator", kind)
			}
			reader.release(t)
			writer.answer(t)
		}
		writer.release(t)
		e.awaitChildren(t, 0)
	}
}

// curatorBefore55 goes by the names of Debian's files.
func curatorBefore55(t *testing.T) bool {
	t.Helper()
	for _, old := range []string{"[1-4].*", "5.[0-4].*"} {
		if found, err := filepath.Glob("/usr/share/java/curator-recipes-" + old + ".jar"); err != nil {
			t.Fatal(err)
		} else if found != nil {
			return true
		}
	}
	return false
}

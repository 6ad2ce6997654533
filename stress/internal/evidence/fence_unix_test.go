//go:build unix

package evidence

import (
	"syscall"
	"testing"

	"github.com/tierlock/tierlock/internal/test/need"
	"github.com/tierlock/tierlock/stress/internal/rule"
)

// Between fork and exec, a child has all open files of the fence's process. The lock of a section that has ended must not last that long.
func TestFenceReleasesTheKernelsLockAlsoWhileItsProcessForks(t *testing.T) {
	dir := t.TempDir()
	r := need.Get(NewRegister(dir, 0, rule.Mutex(), ByKernel))(t)
	v := &visitor{Fence: NewFence(1), dir: dir}
	need.That(t, "alone: overlap", !ask(t, v.Enter, Access{Process: 7}).Overlap)
	childs := need.Get(syscall.Dup(int(v.latch.files[0].Fd())))(t)
	defer syscall.Close(childs)
	need.OK(t, v.Leave(Access{}, nil))
	s := need.Get(r.Enter(1))(t)
	need.That(t, "after the section: overlap", !s.Overlap)
	need.OK(t, s.Abandon())
}

package fault_test

import (
	"fmt"
	"testing"

	"github.com/go-zookeeper/zk"

	"github.com/tierlock/tierlock/internal/test/fault"
	"github.com/tierlock/tierlock/internal/test/need"
	"github.com/tierlock/tierlock/zklock/zktest"
)

var create = &zktest.Frame{Op: "create", Dir: zktest.Request, Path: "/a"}

func meets(t *testing.T, s *fault.Set, f *zktest.Frame, want zktest.Action) {
	t.Helper()
	need.Equal(t, fmt.Sprintf("%v meets", f), s.Intercept(f), want)
}

func TestFaultConcernsItsKindOfFrameOnly(t *testing.T) {
	var s fault.Set
	s.Arm(fault.Fault{Op: "create", At: zktest.Request, Do: zktest.Cut,
		About: func(f *zktest.Frame) bool { return f.Path == "/a" }})
	for _, other := range []*zktest.Frame{
		{Op: "delete", Dir: zktest.Request, Path: "/a"},
		{Op: "create", Dir: zktest.Reply, Path: "/a"},
		{Op: "create", Dir: zktest.Request, Path: "/b"},
	} {
		meets(t, &s, other, zktest.Pass)
	}
	meets(t, &s, create, zktest.Cut)
}

func TestFaultStrikesAsOftenAsItIsTold(t *testing.T) {
	for times, want := range map[int]int{0: 5, 1: 1, 3: 3} {
		var s fault.Set
		before := 0
		a := s.Arm(fault.Fault{At: zktest.Request, Times: times, Do: zktest.Drop, Before: func(*zktest.Frame) { before++ }})
		for range 5 {
			s.Meet(create)
		}
		need.Equal(t, fmt.Sprintf("%d times: struck", times), a.Struck(), want)
		need.Equal(t, fmt.Sprintf("%d times: calls of Before", times), before, want)
	}
}

func TestOldestFaultCountsUntilItIsOverOrLifted(t *testing.T) {
	var s fault.Set
	s.Arm(fault.Fault{At: zktest.Request, Do: zktest.Cut, Times: 1})
	second := s.Arm(fault.Fault{At: zktest.Request, Do: zktest.Drop})
	s.Arm(fault.Fault{At: zktest.Request, Do: zktest.Error(zk.ErrSessionExpired)})
	meets(t, &s, create, zktest.Cut)
	meets(t, &s, create, zktest.Drop)
	second.Lift()
	meets(t, &s, create, zktest.Error(zk.ErrSessionExpired))
	s.Clear()
	meets(t, &s, create, zktest.Pass)
}

// The function Before of a fault may take time, and may arm another fault. Hit is closed only after that.
func TestHitIsToldAfterBefore(t *testing.T) {
	var s fault.Set
	var a *fault.Armed
	hit := func() bool { return need.Closed(a.Hit) }
	a = s.Arm(fault.Fault{At: zktest.Request, Times: 1, Do: zktest.Drop, Before: func(*zktest.Frame) {
		need.That(t, "hit before Before has returned", !hit())
		s.Arm(fault.Fault{At: zktest.Request, Do: zktest.Cut})
	}})
	meets(t, &s, create, zktest.Drop)
	need.That(t, "not hit", hit())
	meets(t, &s, create, zktest.Cut)
}

package zklock_test

import (
	"sync"

	"github.com/tierlock/tierlock/zktest"
)

// on meets the first frame of the kind with action, and lets all others pass.
func on(s *zktest.Server, op zktest.Op, stage zktest.Stage, action zktest.Action) {
	var once sync.Once
	s.Intercept(func(f *zktest.Frame) zktest.Action {
		fate := zktest.Pass
		if f.Op == op && f.Stage == stage {
			once.Do(func() { fate = action })
		}
		return fate
	})
}

// creations counts the lock nodes that are created from now on.
func creations(s *zktest.Server) *int {
	n := new(int)
	s.OnChange(func(_ zktest.View, changes []zktest.Change) {
		for _, c := range changes {
			if c.Kind == zktest.Created && len(c.Path) > len(path) {
				*n++
			}
		}
	})
	return n
}

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

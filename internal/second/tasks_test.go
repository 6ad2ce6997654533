package second

import (
	"fmt"
	"testing"
	"testing/synctest"

	"github.com/tierlock/tierlock/internal/test/need"
)

func TestFewGoroutinesWaitForTheNextTask(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		all := NewTasks()
		for _, tasks := range []int{1, 1, 2 * int(all.Spare)} {
			end := make(chan struct{})
			for range tasks {
				all.Go(func() { <-end })
			}
			close(end)
			synctest.Wait()
			need.Equal(t, fmt.Sprintf("goroutines that wait after %d tasks at once", tasks), all.idle.Load(), min(int64(tasks), all.Spare))
		}
		all.End()
		need.That(t, "a task began after the end", !all.Go(func() {}))
		all.Wait()
	})
}

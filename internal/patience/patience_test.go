package patience

import (
	"fmt"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/tierlock/tierlock/internal/need"
)

// A waiting is looked at by an alarm that goes off late, as in a process that was stopped: its clock is ahead then.
type waiting struct {
	mu      sync.Mutex // guards the fields below
	alarm   Alarm
	begun   time.Time
	stopped time.Duration // until now
	told    []string
}

func (w *waiting) Now() time.Duration { return time.Since(w.begun) + w.stopped }

func (w *waiting) LookAtWait() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.alarm.Off()
	w.told = append(w.told, fmt.Sprint(w.Now(), " ", w.alarm.Judge(w.Now(), 0, 0, w)))
}

func TestTimeInWhichTheProcessWasStoppedMakesNoWaitLong(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := &waiting{begun: time.Now()}
		w.mu.Lock()
		w.alarm.Set(w)
		w.stopped = time.Hour
		w.mu.Unlock()
		time.Sleep(2*long + 1)
		synctest.Wait()
		w.mu.Lock()
		defer w.mu.Unlock()
		need.List(t, "judged", w.told, fmt.Sprint(time.Hour+long, " ", Fine), fmt.Sprint(time.Hour+2*long, " ", Long))
		w.alarm.Stop()
	})
}

package tier

import (
	"fmt"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/tierlock/tierlock/internal/test/need"
)

// A stopped process stands for a process that was paused and therefore checks a wait too late. The clock that it reads is an hour ahead of
// the time for which the alarm was set.
type stopped struct {
	mu     sync.Mutex // guards the fields below
	alarm  alarm
	begun  time.Time
	judged []string
}

func (s *stopped) lookAtWait() {
	s.mu.Lock()
	defer s.mu.Unlock()
	now := time.Since(s.begun) + time.Hour
	long, _ := s.alarm.judge(now, 0, 0, s)
	s.judged = append(s.judged, fmt.Sprint(now, " ", long))
}

func TestTimeInWhichTheProcessWasStoppedMakesNoWaitLong(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &stopped{begun: time.Now()}
		s.mu.Lock()
		s.alarm.goOff(0, longWait, s)
		s.mu.Unlock()
		time.Sleep(2*longWait + 1)
		synctest.Wait()
		s.mu.Lock()
		defer s.mu.Unlock()
		need.List(t, "judged", s.judged, fmt.Sprint(time.Hour+longWait, " ", false), fmt.Sprint(time.Hour+2*longWait, " ", true))
		s.alarm.stop()
	})
}

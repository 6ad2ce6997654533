package sim

import (
	"fmt"
	"strings"
	"sync"
	"time"
)

// A diary notes what happened, one line per event with the virtual time, and what went wrong.
type diary struct {
	start time.Time

	mu         sync.Mutex // guards the fields below; taken last
	lines      []string
	violations []string
}

func newDiary() *diary { return &diary{start: time.Now()} }

func (d *diary) note(format string, args ...any) {
	line := fmt.Sprintf("%11.6f  ", time.Since(d.start).Seconds()) + fmt.Sprintf(format, args...)
	d.mu.Lock()
	defer d.mu.Unlock()
	d.lines = append(d.lines, line)
}

// violate notes that an invariant does not hold. Its name is that of the design: I1, I2, …
func (d *diary) violate(invariant, format string, args ...any) {
	text := invariant + ": " + fmt.Sprintf(format, args...)
	d.note("VIOLATION %s", text)
	d.mu.Lock()
	defer d.mu.Unlock()
	d.violations = append(d.violations, text)
}

func (d *diary) violated() bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	return len(d.violations) > 0
}

func (d *diary) report(p Plan) Report {
	d.mu.Lock()
	defer d.mu.Unlock()
	return Report{Plan: p, Violations: d.violations, log: d.lines}
}

// A Report is the outcome of a run.
type Report struct {
	Plan       Plan
	Violations []string
	Turns      int // times that a lock was granted

	log []string
}

// maxLines of the log are shown around the first violation.
const maxLines = 150

// Log returns the end of the log up to shortly after the first violation.
func (r Report) Log() string {
	lines := r.log
	for i, line := range lines {
		if strings.Contains(line, "VIOLATION") {
			lines = lines[:min(i+20, len(lines))]
			break
		}
	}
	return strings.Join(lines[max(0, len(lines)-maxLines):], "\n")
}

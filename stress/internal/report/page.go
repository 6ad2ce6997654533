package report

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/tierlock/tierlock/stress/internal/report/page"
)

// names are those of the locks for people.
var names = map[string]string{
	"mutex": "tierlock", "rw": "RWMutex", "semaphore": "Semaphore", "zk": "zk.Lock", "etcd": "concurrency.Mutex",
	"advisory": "pg_advisory_lock", "version": "a version column", "redislock": "bsm/redislock",
}

// NameOf returns the name of a kind of lock for people.
func NameOf(lock string) string {
	if name, ok := names[lock]; ok {
		return name
	}
	return lock
}

// Comparison is the result as the report draws it.
func (r *Result) Comparison(work string) page.Comparison {
	c := page.Comparison{Work: work, Ratio: r.Ratio, Run: r.drawn()}
	if r.Baseline != nil {
		peer := r.Baseline.drawn()
		c.Peer = &peer
	}
	return c
}

func (r *Result) drawn() page.Run {
	run := page.Run{
		Lock: NameOf(r.Lock), Verdict: r.Verdict, PerSecond: r.PerSecond, PerProcess: r.PerProcess, Jain: r.Jain, Busy: r.Busy,
		HandOver: time.Duration(r.HandOver.P50), AwayBound: time.Duration(r.AwayBound), Packets: r.Packets, Writes: r.Writes,
	}
	if r.Away != nil {
		run.Away = time.Duration(r.Away.Max)
	}
	for _, q := range r.Curve {
		run.Wait = append(run.Wait, page.Quantile{Q: q.Q, At: time.Duration(q.NS)})
	}
	return run
}

// work says what the processes did.
func (r *Result) work() string {
	text := fmt.Sprintf("%d × %d%s", r.Procs, r.Goroutines, r.lockText())
	if r.Paths > 1 {
		text += fmt.Sprintf(" on %d locks", r.Paths)
		if r.Zipf > 0 {
			text += fmt.Sprintf(" by Zipf %g", r.Zipf)
		}
	}
	if r.Section == 0 {
		text += ", empty section"
	} else {
		text += ", section of " + page.Duration(time.Duration(r.Section))
	}
	if r.RTT > 0 {
		text += ", RTT of " + page.Duration(time.Duration(r.RTT))
	}
	return text
}

// WritePage writes a report of this run alone. An illegal history is drawn beside it.
func (r *Result) WritePage(name string) error {
	p := page.Page{
		Title: "stress: " + r.Verdict,
		Summary: fmt.Sprintf("%d processes with %d goroutines each, for %s, seed %d. %s",
			r.Procs, r.Goroutines, page.Duration(time.Duration(r.Duration)), r.Seed, strings.Join(r.Violations(), "; ")),
		Comparisons: []page.Comparison{r.Comparison(r.work())},
		Environment: r.Environment.Facts(),
	}
	if r.Chaos != nil && r.Chaos.Drawing != "" {
		p.History = filepath.Base(r.Chaos.Drawing)
	}
	return WriteFile(name, &p)
}

// WriteFile writes a page to a file.
func WriteFile(name string, p *page.Page) error {
	file, err := os.Create(name)
	if err != nil {
		return err
	}
	return errors.Join(p.WriteHTML(file), file.Close())
}

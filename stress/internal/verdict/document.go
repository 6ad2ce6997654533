package verdict

import (
	"cmp"
	"fmt"
	"maps"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/tierlock/tierlock/stress/internal/report"
)

// findings has the outcomes of all trials, and the environment in which they were run.
type findings struct {
	seed     uint64
	trials   int
	where    *report.Environment
	load     string   // the load of the machine when the run began
	absent   []string // the subjects that this machine does not have, each with the reason
	outcomes []outcome
	jepsen   []string // the rows of the table of Jepsen's workloads
	failed   bool     // a lock of tierlock has failed, or a trial has no outcome
}

// machineLoad returns the mean number of threads that were running or ready to run in the last minute. It returns "" if the system does
// not report that.
func machineLoad() string {
	text, _ := os.ReadFile("/proc/loadavg")
	load, _, _ := strings.Cut(string(text), " ")
	return load
}

func (o outcome) String() string {
	head := fmt.Sprintf("%s/%s, trial %d, %s: ", o.Subject, o.Fault, o.Number, cmp.Or(o.Choice, "before the fault"))
	if o.Error != "" {
		return head + "no outcome: " + strings.ReplaceAll(o.Error, "\n", "; ")
	}
	return head + fmt.Sprintf("overlaps %d, %s; never %q; left %d", o.Overlaps, seconds(o.Late), o.Never, o.Left)
}

func seconds(d time.Duration) string {
	if d > 0 && d < time.Millisecond {
		return "under 0.001 s"
	}
	return fmt.Sprintf("%.3f s", d.Seconds())
}

// tally sums up the trials of a cell.
type tally struct {
	trials, overlaps, never int
	late                    time.Duration
	left                    int64
	again                   []string // the trials in which something was bad, and those without an outcome
}

func (f *findings) tally(subject, fault string) (t tally) {
	for _, o := range f.outcomes {
		if o.Subject != subject || o.Fault != fault {
			continue
		}
		if o.Error != "" {
			t.again = append(t.again, fmt.Sprintf("%d has no outcome", o.Number))
			continue
		}
		t.trials++
		t.late = max(t.late, o.Late)
		t.left = max(t.left, o.Left)
		if o.Overlaps > 0 {
			t.overlaps++
		}
		if len(o.Never) > 0 {
			t.never++
		}
		if o.bad() {
			t.again = append(t.again, fmt.Sprintf("%d (%s)", o.Number, o.Choice))
		}
	}
	return t
}

// The method bad reports whether the trial has shown that the lock did something that a lock must not do.
func (o outcome) bad() bool { return o.Overlaps > 0 || len(o.Never) > 0 || o.Left > 0 }

// tally.of formats n as a number of trials out of all trials of the cell.
func (t tally) of(n int) string {
	switch {
	case t.trials == 0:
		return "–"
	case n == 0:
		return "0"
	}
	return fmt.Sprintf("%d of %d", n, t.trials)
}

// document returns the text of docs/verdicts.md.
func (f *findings) document() string {
	slices.SortFunc(f.outcomes, func(x, y outcome) int {
		return cmp.Or(cmp.Compare(x.Subject, y.Subject), cmp.Compare(x.Fault, y.Fault), cmp.Compare(x.Number, y.Number))
	})
	var w strings.Builder
	f.introduce(&w)
	f.summarize(&w)
	f.describe(&w)
	for _, fault := range faults {
		f.detail(&w, fault)
	}
	f.workloadsText(&w)
	return w.String()
}

func (f *findings) introduce(w *strings.Builder) {
	fmt.Fprint(w, `# Verdicts

`+"`make verdicts`"+` writes this page from its results. Do not edit it by hand.

This page compares tierlock with other locks under the same faults. In each trial, one process owns the lock, and reaches a real server
through a proxy. A second process reaches the server directly and waits for the lock. Then a fault occurs. Each trial has its own server.
With the same seed, all locks get the same random choices. Leases last 5 s. A process that loses its lock releases it, as a deferred call
of Unlock would.

Each cell has four numbers:

- **Overlaps**: the number of trials in which both processes were in the critical section at the same time. Each of them had checked
  with its library that it had the lock. The checker of tierlock's own tests counts these trials.
- **Believed**: the longest time for which an owner still considered the lock its own after the store had granted the lock to the other
  process. The owner asks its library every millisecond, as it would before a write. The time in which the owner was stopped does not
  count.
- **Never**: the number of trials in which a call did not return within 20 s although the fault was over.
- **Left**: the largest number of entries in the store after both processes had released the lock.

If the owner process was stopped, overlaps of a few milliseconds have a simple reason: when the process continues, the library reports the
loss only after one of its own threads or goroutines has run. A library avoids such overlaps if each check compares the clock with the end
of the lease. If a program checks the lock before a stop, and writes after the stop, no library can prevent the late write. Only a fencing
token can.

`)
	versions := map[string]bool{}
	for _, o := range f.outcomes {
		versions[o.Server] = o.Server != ""
	}
	maps.DeleteFunc(versions, func(_ string, known bool) bool { return !known })
	fmt.Fprintf(w, "Measured on %s, %d processors (%s, %s), %s; servers: %s. Each cell has %d trials, with seed %d.",
		f.where.Date.Format("2 January 2006"), f.where.CPUs, f.where.CPU, f.where.System, f.where.Go,
		strings.Join(slices.Sorted(maps.Keys(versions)), ", "), f.trials, f.seed)
	var load float64
	if _, err := fmt.Sscan(f.load, &load); err == nil && load > float64(f.where.CPUs) {
		fmt.Fprintf(w, "\nOther work kept the machine busy: its load average was %s when the run began. The busy machine can change "+
			"figures below 0.1 s.", f.load)
	}
	fmt.Fprint(w, "\n\nTo repeat one trial, run `cd stress/verdicts && GOWORK=off go run . -only redsync/cut -trial 2`. "+
		"`make verdicts FULL=1` runs\nthirty trials for each cell, and takes some hours.\n\n")
}

func (f *findings) summarize(w *strings.Builder) {
	fmt.Fprint(w, "## Summary\n\nEach cell shows the overlaps, and the longest time as in \"believed\". "+
		"It shows \"never\" and \"left\" only if they are not zero.\n\n|")
	for _, fault := range faults {
		fmt.Fprintf(w, " | %s", fault.title)
	}
	fmt.Fprintf(w, " |\n|---|%s\n", strings.Repeat("---|", len(faults)))
	for _, s := range subjects {
		fmt.Fprintf(w, "| %s", s.Title)
		for _, fault := range faults {
			t := f.tally(s.Name, fault.name)
			fmt.Fprintf(w, " | %s", t.of(t.overlaps))
			if t.overlaps > 0 {
				fmt.Fprintf(w, ", %s", seconds(t.late))
			}
			if t.never > 0 {
				fmt.Fprintf(w, "; never: %d", t.never)
			}
			if t.left > 0 {
				fmt.Fprintf(w, "; left: %d", t.left)
			}
		}
		fmt.Fprint(w, " |\n")
	}
}

func (f *findings) describe(w *strings.Builder) {
	fmt.Fprint(w, "\n## How each lock is used\n\n| | version | option that sets the lease to 5 s; its default | "+
		"how the owner notices a loss |\n"+
		"|---|---|---|---|\n")
	versions := map[string]string{}
	for _, o := range f.outcomes {
		versions[o.Subject] = cmp.Or(o.Version, versions[o.Subject])
	}
	for _, s := range subjects {
		fmt.Fprintf(w, "| %s | %s | %s | %s |\n", s.Title, cmp.Or(versions[s.Name], "–"), s.Lease, s.Tells)
	}
	if f.absent != nil {
		fmt.Fprintf(w, "\nThis run left out:\n\n- %s\n", strings.Join(f.absent, "\n- "))
	}
}

// detail lists the subjects in which the fault has caused something bad. The summary lists all subjects.
func (f *findings) detail(w *strings.Builder, fault fault) {
	fmt.Fprintf(w, "\n## %s\n\n%s\n\n", fault.title, fault.text)
	var rows, limits []string
	for _, s := range subjects {
		t := f.tally(s.Name, fault.name)
		if t.again == nil {
			continue
		}
		const most = 3
		again := strings.Join(t.again[:min(len(t.again), most)], ", ")
		if len(t.again) > most {
			again += ", …"
		}
		rows = append(rows, fmt.Sprintf("| %s | %s | %s | %s | %d | `%s/%s` %s |",
			s.Title, t.of(t.overlaps), seconds(t.late), t.of(t.never), t.left, s.Name, fault.name, again))
		for _, l := range s.Limits {
			limits = append(limits, fmt.Sprintf("- %s: \"%s\" (%s)", s.Title, l.Text, l.Source))
		}
	}
	if rows == nil {
		fmt.Fprint(w, "No lock had an overlap or another failure.\n")
		return
	}
	fmt.Fprintf(w, "| | overlaps | believed | never | left | trials that show it |\n|---|---|---|---|---|---|\n%s\n\n"+
		"The other locks had no overlap and no other failure.", strings.Join(rows, "\n"))
	if limits != nil {
		fmt.Fprintf(w, " The documentation of the locks in the table says:\n\n%s", strings.Join(limits, "\n"))
	}
	fmt.Fprint(w, "\n")
}

package command

import (
	"errors"
	"flag"
	"fmt"
	"strconv"
	"strings"
	"time"
	_ "time/tzdata" // some systems have no time zones, such as Windows and small containers

	"github.com/robfig/cron/v3"

	"github.com/tierlock/tierlock/slots"
)

// The type slotOptions has the flags of run about slots.
type slotOptions struct {
	every    time.Duration
	cron     string
	schedule slots.Schedule // nil without -every and -cron: the command runs once
	options  []slots.Option // those of -catch-up and -after-crash
}

func (o *slotOptions) flags(flags *flag.FlagSet) {
	duration(flags, &o.every, "every", "`time` from slot to slot; run the command once per slot", true)
	flags.Func("cron", "`expression` of cron; run the command once per slot", func(text string) (err error) {
		o.cron = text
		o.schedule, err = parseCron(text)
		return err
	})
	flags.Func("catch-up", "`number` of missed slots that run, the newest ones (default 1)", func(text string) error {
		n, err := strconv.Atoi(text)
		if err != nil || n < 0 {
			return errors.New("want a number of 0 or more")
		}
		o.options = append(o.options, slots.CatchUp(n))
		return nil
	})
	flags.Func("after-crash", "`policy` for a slot whose command was killed: skip or retry (default skip)", func(text string) error {
		policy, ok := map[string]slots.Policy{"skip": slots.Skip, "retry": slots.Retry}[text]
		if !ok {
			return errors.New("want skip or retry")
		}
		o.options = append(o.options, slots.AfterCrash(policy))
		return nil
	})
}

// parseCron returns the schedule of a cron expression. All its slots are the same in every process.
func parseCron(text string) (slots.Schedule, error) {
	zoned := strings.HasPrefix(text, "TZ=") || strings.HasPrefix(text, "CRON_TZ=")
	if zoned && !strings.Contains(text, " ") { // the parser would panic
		return nil, errors.New("the fields after the time zone are missing")
	}
	parsed, err := cron.ParseStandard(text)
	if err != nil {
		return nil, err
	}
	if _, ok := parsed.(*cron.SpecSchedule); !ok {
		return nil, errors.New("with @every each process would have different slots; use the flag -every")
	}
	if parsed.Next(time.Now().UTC()).IsZero() {
		return nil, errors.New("the expression has no slot in the next five years")
	}
	return parsed.Next, nil
}

// checkSlots completes the schedule. It returns an error if other flags cannot be combined with a schedule.
func (o *runOptions) checkSlots() error {
	s := &o.slot
	switch {
	case s.every > 0 && s.cron != "":
		return usageError("-every %v and -cron %q are two schedules; give only one of them", s.every, s.cron)
	case s.every > 0 && s.every < time.Second:
		return usageError("-every %v is too short; want 1s or more", s.every)
	case s.every > 0:
		s.schedule = slots.Every(s.every, time.Time{})
	case s.schedule == nil && len(s.options) > 0:
		return usageError("-catch-up and -after-crash need slots; give -every or -cron, too")
	}
	switch {
	case s.schedule == nil:
		return nil
	case o.try || o.wait > 0:
		return usageError("-n and -w limit the wait; with -every or -cron, tierlock always waits to take over")
	case o.share:
		return usageError("-s shares the lock between processes, but a slot of -every or -cron runs in only one process")
	case o.permits > 0:
		return usageError("-permits holds permits of a semaphore; the slots of -every or -cron need a lock")
	}
	return nil
}

// These are the beginnings of the labels of processes with slots, after [runLabel].
const (
	everyLabel = "-every "
	cronLabel  = "-cron "
)

// The method label returns the beginning of the label. Without a schedule it is empty.
func (o *slotOptions) label() string {
	switch {
	case o.every > 0:
		return fmt.Sprintf("%s%v ", everyLabel, o.every)
	case o.cron != "":
		return fmt.Sprintf("%s'%s' ", cronLabel, o.cron)
	}
	return ""
}

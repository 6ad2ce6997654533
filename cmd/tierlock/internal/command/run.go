package command

import (
	"context"
	"errors"
	"flag"
	"io/fs"
	"os/exec"
	"strconv"
	"time"
)

// The type runOptions has the flags of run.
type runOptions struct {
	try         bool
	wait        time.Duration // 0: no limit
	notAcquired int           // the exit status if the lock is not acquired
	grace       time.Duration // negative: the default, which is half of the margin
	session     time.Duration // 0: the default
	revocable   bool          // end the command when the lock is revoked
	share       bool          // acquire the lock for reading
	permits     int           // the number of permits of the semaphore; 0 for a lock
	weight      int           // the number of permits to hold; 0 stands for one
	slot        slotOptions
	verbose     bool
	line        string // only for keep: how it communicates with run
}

const runHelp = `Waits for the lock at PATH, runs the command while the lock is held, and exits with the command's
status.

  tierlock run /jobs/report -- ./report.sh         one at a time, on all machines
  tierlock run -n /jobs/nightly -- backup /data    only if the lock is free
  tierlock run -w 30s -E 0 /jobs/sync -- rsync …   waits for 30 s; exits with 0 if the lock stays taken
  tierlock run /jobs/x -- timeout 10m ./report.sh  limits the time of the work
  tierlock run /jobs/x -- sh -c 'a | b >> log'     a shell, if you need one
  tierlock run -s /data -- tar c /data             together with others that use -s
  tierlock run -permits 5 -weight 2 /db -- load    holds 2 of the 5 permits of /db
  tierlock run -every 1h /jobs/x -- ./report.sh    once per hour, on one of all machines with this line
  tierlock run -cron '0 3 * * *' /jobs/x -- backup the same at 03:00 UTC every day

The command runs in its own process group, with TIERLOCK_PATH and TIERLOCK_TOKEN in its environment.
The token is a fencing token: pass it to the system that the command writes to, and let that system
refuse lower ones. No lock can stop a write that is already on its way. The command can use the
terminal.

The lock is released when the command and all processes that it started have ended. On Linux and
Windows, tierlock also waits for processes in the background and in other sessions. On other systems it
waits for the process group. It does not wait for processes that another program starts for the command
(docker run, systemd-run, ssh). If a daemon must not keep the lock, start it outside of run.

readers:  Commands with -s run together. A command with -s and a command without -s exclude each
other. A command with -s also excludes a program's Mutex and the writers of its RWMutex.

permits:  With -permits N, all commands at PATH together hold at most N permits. A command holds one
permit, or K with -weight K. Use the same N everywhere. If tierlock permits has stored a number at PATH,
this number replaces N. Permits of one command are acquired, lost and released together. Permits cannot
be revoked, and TIERLOCK_TOKEN is not a fencing token, because several commands hold permits at a time.
A lock at the same PATH is independent of the permits.

slots:  With -every or -cron, tierlock keeps running, and runs the command once per slot. Start the
same line on several machines. The process that gets the lock keeps it and runs the slots. The others
wait to take over. All machines have the same slots of -every: with 1h a slot is each full hour in UTC,
with 24h each midnight in UTC, with 168h each Monday at midnight in UTC. -cron takes five fields, or a
word such as @daily. Its times are in UTC, or in the time zone of 'CRON_TZ=Europe/Berlin 0 3 * * *'.
The command also gets TIERLOCK_SLOT, the time of the slot in UTC, and TIERLOCK_ATTEMPT, 1 for the first
run of a slot. If a command fails, tierlock reports it, and waits for the next slot. If a command was
killed, because the lock was lost or its machine crashed, it does not run again for the same slot,
unless all processes have -after-crash retry. If several slots were missed, only the newest one runs;
-catch-up changes this number. A ledger beside the lock records which slots have run. Therefore do not
use PATH for anything else. TERM, INT and HUP end the schedule: a running command gets the signal, and
tierlock waits until the command has ended. Other signals have no effect between slots. tierlock revoke
moves the lock to the next process between two slots; with -revocable, it also ends a running command.
Let a service manager start tierlock again if it is killed (systemd: Restart=always).

signals:  TERM, INT, HUP, QUIT, USR1, USR2, WINCH, TSTP and CONT go to the command's process
group. Before the command has started, the first six of these signals end tierlock, and its queue entry
is deleted. A suspended command keeps the lock. If you suspend tierlock while it waits, it keeps its
place in the queue, and the command starts when the lock is acquired.

lost lock:  While no server can be reached, the lock is held until its lease ends. Then the command
gets TERM. After -grace, the command and all processes that it started get KILL, before the servers
can give the lock to another process. After the lease, the servers keep the lock for the margin, a
third of the session's timeout; -grace may take three quarters of the margin. If tierlock break
deleted the queue entry, or the servers ended the session, KILL comes at once, and another process may
already hold the lock.

revoke:  With -revocable, the command gets TERM when tierlock revoke asks for the lock. After -grace,
the command and all processes that it started get KILL. Then the lock is released. The exit status is
the command's. Without -revocable, tierlock run ignores such a request.

kill -9:  Two processes watch each other: tierlock run, and its child tierlock keep, which holds the
lock and starts the command. If tierlock run is killed, the command gets TERM, and KILL after -grace;
then the lock is released. If tierlock keep is killed, the command and its processes get KILL, and the
lock is free when its session ends. If tierlock keep is stopped or hangs, the command and its processes
get KILL while the servers still keep the lock. If both are killed at once, the command is also killed
on Linux, but not the processes that it started. If both are stopped, the command is not killed.
tierlock cannot kill processes of another user (sudo): run tierlock as that user.

Windows:  A job object replaces the process group, and no process can leave it. When tierlock keep is
killed, Windows ends the job. Ctrl-C and Ctrl-Break go to the command, or end tierlock before the
command has started. In place of TERM, the command gets Ctrl-Break, which does not reach processes
without the console. Windows has no other signals, and does not suspend processes.

exit status:
  the status of the command; 128+N if signal N ended the command, or ended tierlock while it waited
  0   with -every or -cron, after TERM, INT or HUP
  64  the command line is wrong: -grace too long for the session, -weight more than the permits of PATH
  69  no server can be reached
  70  any other error
  74  the lock, or a permit, was lost while the command ran
  75  the lock, or the permits, were not acquired (-n, -w); see -E
  126, 127  the command cannot be executed, or does not exist
`

const runUsage = "[-n | -w TIME] [flags] PATH -- COMMAND [ARGUMENT…]"

func runSubcommand() *subcommand {
	o := newRunOptions()
	return &subcommand{
		name: "run", usage: runUsage, about: "run a command while holding a lock, or permits of a semaphore", help: runHelp,
		flags: o.flags, run: o.run,
	}
}

// keepSubcommand returns the subcommand that the second process of run executes; see [keeper].
func keepSubcommand() *subcommand {
	o := newRunOptions()
	flags := func(flags *flag.FlagSet) {
		o.flags(flags)
		flags.StringVar(&o.line, "line", o.line, "the `numbers` of the descriptors of two pipes that connect this process to tierlock run")
	}
	return &subcommand{name: "keep", usage: runUsage, help: "Is started by tierlock run.\n", hidden: true, flags: flags, run: o.keep}
}

func newRunOptions() *runOptions { return &runOptions{notAcquired: exitNotAcquired, grace: -1} }

func (o *runOptions) flags(flags *flag.FlagSet) {
	flags.BoolVar(&o.try, "n", o.try, "do not wait for the lock")
	duration(flags, &o.wait, "w", "`time` to wait for the lock at most (default: no limit)", true)
	flags.Func("E", "exit `status` if the lock is not acquired (default 75)", func(text string) error {
		n, err := strconv.ParseUint(text, 10, 8)
		if err != nil {
			return errors.New("want a number from 0 to 255")
		}
		o.notAcquired = int(n)
		return nil
	})
	duration(flags, &o.grace, "grace", "`time` from TERM to KILL after the lock is lost or tierlock revoke asks for it "+
		"(default: a sixth of the session's "+
		"timeout)", false)
	duration(flags, &o.session, "session", "`timeout` of the session to ask the servers for (default 15s)", true)
	flags.BoolVar(&o.revocable, "revocable", o.revocable, "end the command when tierlock revoke asks for the lock")
	flags.BoolVar(&o.share, "s", o.share, "hold the lock for reading, together with other commands that use -s")
	number(flags, &o.permits, "permits", "`number` of permits at PATH; hold -weight of them instead of a lock")
	number(flags, &o.weight, "weight", "`number` of permits to hold (default 1)")
	o.slot.flags(flags)
	flags.BoolVar(&o.verbose, "v", o.verbose, "print which process holds the lock, and how long tierlock waited; "+
		"with a schedule, print each slot that ran")
}

// The method run checks everything that may be wrong before it starts anything.
func (o *runOptions) run(_ context.Context, in *invocation) error {
	in.speakAside()
	if err := o.check(in); err != nil {
		return err
	}
	return watchKeeper(in)
}

func (o *runOptions) check(in *invocation) error {
	path, err := in.path()
	switch {
	case len(in.command) == 0:
		return usageError("the command is missing; want run %s", runUsage)
	case err != nil:
		return err
	case o.try && o.wait > 0:
		return usageError("-n does not wait, but -w %v waits; give only one of them", o.wait)
	}
	if err := o.checkPermits(); err != nil {
		return err
	}
	if err := o.checkSlots(); err != nil {
		return err
	}
	if err := in.store.ValidatePath(path); err != nil {
		return usage(err)
	}
	if _, err := exec.LookPath(in.command[0]); err != nil {
		return cannotRun(err)
	}
	return nil
}

func (o *runOptions) checkPermits() error {
	switch {
	case o.permits == 0 && o.weight > 0:
		return usageError("-weight %d sets how many permits to hold; give -permits, too", o.weight)
	case o.permits > 0 && o.share:
		return usageError("-s holds a lock for reading, but -permits %d holds permits of a semaphore; give only one of them", o.permits)
	case o.permits > 0 && o.revocable:
		return usageError("permits cannot be revoked; -revocable is for a lock")
	case o.weight > o.permits:
		return usageError("-weight %d is more than -permits %d; want %d at most", o.weight, o.permits, o.permits)
	}
	return nil
}

// These are the beginnings of the labels that other processes see in the queue.
const (
	runLabel       = "run "
	revocableLabel = runLabel + "-revocable "
)

func (o *runOptions) label(command string) string {
	if o.revocable {
		return revocableLabel + o.slot.label() + command
	}
	return runLabel + o.slot.label() + command
}

// cannotRun returns the error for a command that cannot be executed. It has the exit status that a shell would use.
func cannotRun(err error) error {
	if errors.Is(err, exec.ErrNotFound) || errors.Is(err, fs.ErrNotExist) {
		return fail(exitNotFound, "%w", err)
	}
	return fail(exitCannotRun, "%w", err)
}

// maxGrace returns the longest grace for a margin. The rest of the margin is the time for KILL to take effect on a busy machine.
func maxGrace(margin time.Duration) time.Duration { return margin * 3 / 4 }

// runOptions.within returns the grace for a margin. If the requested grace is too long, within returns an error.
func (o *runOptions) within(margin time.Duration) (time.Duration, error) {
	switch limit := maxGrace(margin); {
	case o.grace < 0:
		return margin / 2, nil
	case o.grace > limit:
		return 0, usageError("-grace %v is too long: with the session that the servers granted, KILL must come at most %v after the loss "+
			"of the lock; want less, or a longer -session",
			o.grace, limit.Round(time.Millisecond))
	}
	return o.grace, nil
}

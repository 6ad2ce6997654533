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

// runOptions are the flags of run.
type runOptions struct {
	try         bool
	wait        time.Duration // 0: for ever
	notAcquired int           // the status then
	grace       time.Duration // negative: half of the margin
	session     time.Duration // 0: the default
	revocable   bool          // end the command when somebody asks for the lock
	share       bool          // hold the lock to read
	permits     int           // of a semaphore; 0: a lock
	weight      int           // permits to hold; 0: one
	verbose     bool
	line        string // of keep: how it talks to run
}

const runHelp = `Waits for the lock at PATH, runs the command while it is held, and exits with the
command's status.

  tierlock run /jobs/report -- ./report.sh         one at a time, on all machines
  tierlock run -n /jobs/nightly -- backup /data    only if nobody else is at it
  tierlock run -w 30s -E 0 /jobs/sync -- rsync …   waits for 30 s, and is content without
  tierlock run /jobs/x -- sh -c 'a | b >> log'     a shell, if you need one
  tierlock run -s /data -- tar c /data             beside others with -s, but not beside those without
  tierlock run -permits 5 -weight 2 /db -- load    while it holds 2 of the 5 permits of /db

The command runs in a process group of its own, with TIERLOCK_PATH and TIERLOCK_TOKEN in its
environment. Give the token to what the command writes to, and have it refuse lower ones:
no lock can stop a write that is on its way. A terminal is the command's when it wants it.

The lock is released when the command and all that it started have ended. On Linux and Windows that
includes what went into the background or to another session; elsewhere it is the process group.
What others start for the command (docker run, systemd-run, ssh) is not part of it. Daemons that
should not keep the lock have to be started outside of run.

readers:  With -s the command runs beside others that read: those of run -s and of RWMutex. It
excludes, and waits for, those of run without -s, Mutex, and the writers of RWMutex.

permits:  With -permits N all that run at PATH hold N permits together at most: -weight K of them
each, or one. All have to give the same N. They are held, lost and given up as a lock is, and all at
once; but nobody can ask for them, and TIERLOCK_TOKEN is no fence, as several have permits at a time.
A lock at the same PATH is another thing, which neither waits for the other.

signals:  TERM, INT, HUP, QUIT, USR1, USR2, WINCH, TSTP and CONT go to the command's process
group. Before it has begun, the first six end tierlock instead, and nothing stays in the queue.
A suspended command keeps the lock. If you suspend tierlock while it waits, it keeps its place,
and the command begins when its turn comes.

loss:  While no server can be reached, the lock is safe for as long as its lease runs. When
that is over, the command gets TERM, and after -grace all that it started gets KILL, before
the servers can give the lock to anybody else. They keep it for a third of the session's
timeout, the margin; -grace may take three quarters of that. If the contender was deleted
(tierlock break) or the servers ended the session, KILL comes at once, and somebody else may
have had the lock for a moment.

asked:  With -revocable the command gets TERM when somebody asks for the lock (tierlock revoke),
after -grace all that it started gets KILL, and then the lock is released. The exit status is the
command's. Without -revocable a request changes nothing.

kill -9:  Two processes look after each other: tierlock run and its child tierlock keep,
which has the lock and starts the command. If tierlock run is killed, the command gets TERM,
after -grace KILL, and then the lock is released. If tierlock keep is killed, everything gets
KILL, and the lock is free when its session is over. If tierlock keep is stopped or hangs,
everything gets KILL while the servers still keep the lock. If both are killed at once, the
command is killed, too (Linux), but not what it has started; if both are stopped, nobody acts.
What runs as another user (sudo) cannot be killed: run tierlock as that user.

Windows:  The command and all that it starts are in a job object instead of a process group, which
nobody leaves; when tierlock keep is killed, Windows ends it. Ctrl-C and Ctrl-Break are the command's,
or end tierlock before it has begun. TERM is Ctrl-Break, which asks nobody who has left the console;
there are no other signals, and nothing is suspended.

exit status:
  that of the command; 128+N if signal N ended it, or ended tierlock while it waited
  64  the command line is wrong: -grace too long for the session, -permits not the number of PATH
  69  no server can be reached
  70  anything else
  74  the lock, or a permit, was lost while the command ran
  75  the lock, or the permits, were not acquired (-n, -w); see -E
  126, 127  the command cannot be executed, or is not there
`

const runUsage = "[-n | -w TIME] [flags] PATH -- COMMAND [ARGUMENT…]"

func runSubcommand() *subcommand {
	o := newRunOptions()
	return &subcommand{
		name: "run", usage: runUsage, about: "run a command while holding a lock, or permits of a semaphore", help: runHelp,
		flags: o.flags, run: o.run,
	}
}

// keepSubcommand is the other process of run; see [keeper].
func keepSubcommand() *subcommand {
	o := newRunOptions()
	flags := func(flags *flag.FlagSet) {
		o.flags(flags)
		flags.StringVar(&o.line, "line", o.line, "`descriptors` of two pipes to tierlock run")
	}
	return &subcommand{name: "keep", usage: runUsage, help: "Is started by tierlock run.\n", hidden: true, flags: flags, run: o.keep}
}

func newRunOptions() *runOptions { return &runOptions{notAcquired: exitNotAcquired, grace: -1} }

func (o *runOptions) flags(flags *flag.FlagSet) {
	flags.BoolVar(&o.try, "n", o.try, "do not wait for the lock")
	duration(flags, &o.wait, "w", "`time` to wait for the lock at most (default: for ever)", true)
	flags.Func("E", "exit `status` if the lock is not acquired (default 75)", func(text string) error {
		n, err := strconv.ParseUint(text, 10, 8)
		if err != nil {
			return errors.New("want a number from 0 to 255")
		}
		o.notAcquired = int(n)
		return nil
	})
	duration(flags, &o.grace, "grace", "`time` from TERM to KILL when the lock is lost or asked for (default: a sixth of the session's "+
		"timeout)", false)
	duration(flags, &o.session, "session", "`timeout` of the session to ask the servers for (default 15s)", true)
	flags.BoolVar(&o.revocable, "revocable", o.revocable, "end the command when somebody asks for the lock")
	flags.BoolVar(&o.share, "s", o.share, "hold the lock to read, together with others that read")
	number(flags, &o.permits, "permits", "`number` of permits at PATH, of which to hold -weight instead of a lock")
	number(flags, &o.weight, "weight", "`number` of permits to hold (default 1)")
	flags.BoolVar(&o.verbose, "v", o.verbose, "say for whom it waits, and how long it waited")
}

// run finds out what is wrong before anything begins.
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
		return usageError("-n does not wait, -w %v does; want one of them", o.wait)
	}
	if err := o.checkPermits(); err != nil {
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
		return usageError("-weight %d is how many of all permits to hold; give -permits, too", o.weight)
	case o.permits > 0 && o.share:
		return usageError("-s holds a lock to read, -permits %d some of a semaphore; want one of them", o.permits)
	case o.permits > 0 && o.revocable:
		return usageError("permits cannot be asked for; -revocable is for a lock")
	case o.weight > o.permits:
		return usageError("-weight %d of -permits %d: there will never be so many; want %d at most", o.weight, o.permits, o.permits)
	}
	return nil
}

// What others see in the queue begins with one of these.
const (
	runLabel       = "run "
	revocableLabel = runLabel + "-revocable "
)

func (o *runOptions) label(command string) string {
	if o.revocable {
		return revocableLabel + command
	}
	return runLabel + command
}

// cannotRun says why there is no command, with the statuses of a shell.
func cannotRun(err error) error {
	if errors.Is(err, exec.ErrNotFound) || errors.Is(err, fs.ErrNotExist) {
		return fail(exitNotFound, "%w", err)
	}
	return fail(exitCannotRun, "%w", err)
}

// maxGrace is what may be used of a margin: the rest is for KILL to take effect on a busy
// machine.
func maxGrace(margin time.Duration) time.Duration { return margin * 3 / 4 }

// within returns the grace under a margin, or what is wrong with it.
func (o *runOptions) within(margin time.Duration) (time.Duration, error) {
	switch limit := maxGrace(margin); {
	case o.grace < 0:
		return margin / 2, nil
	case o.grace > limit:
		return 0, usageError("-grace %v is too long: the servers granted a session that leaves %v from the loss of the lock to KILL; want "+
			"less, or a longer -session",
			o.grace, limit.Round(time.Millisecond))
	}
	return o.grace, nil
}

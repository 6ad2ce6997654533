package command

import (
	"context"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"syscall"
	"time"

	"github.com/tierlock/tierlock/cmd/tierlock/internal/inspect"
	"github.com/tierlock/tierlock/cmd/tierlock/internal/inspect/page"
)

// The type watchOptions has the flags of watch.
type watchOptions struct {
	every  time.Duration
	limit  int
	http   string
	public bool
}

// leastEvery is the shortest interval. It prevents a typing error from causing a high load.
const leastEvery = 100 * time.Millisecond

func watchSubcommand() *subcommand {
	o := &watchOptions{every: 500 * time.Millisecond, limit: 1000}
	return &subcommand{
		name:  "watch",
		usage: "[-every DURATION] [-http HOST:PORT] PATH",
		about: "follow the locks below a path, live or as a page",
		help: `Follows the locks and semaphores at PATH and below it until it is interrupted. A terminal shows a table
that is refreshed. Other outputs get one line per change, or with -o json one object. It reconnects by
itself and reports lost connections.

  tierlock watch /jobs
  tierlock watch / -http 127.0.0.1:8080

With -http it serves a page instead: holders, waiters, how long they wait, and acquisitions over time.
The page changes nothing and has no password; an address that other machines can reach needs -public.

It reads each lock once per -every, and does not see a hold or a wait that begins and ends between two
reads. Every 5 s it searches for new locks.
`,
		flags: o.flags,
		run:   o.run,
	}
}

func (o *watchOptions) flags(flags *flag.FlagSet) {
	duration(flags, &o.every, "every", "`time` between two reads of a lock, at least 100ms (default 500ms)", true)
	flags.IntVar(&o.limit, "limit", o.limit, "examine at most `N` paths (default 1000)")
	flags.StringVar(&o.http, "http", o.http, "serve a page at `host:port`")
	flags.BoolVar(&o.public, "public", o.public, "allow -http an address that other machines can reach")
}

func (o *watchOptions) run(ctx context.Context, in *invocation) error {
	path, err := in.pathOrRoot()
	if err != nil {
		return err
	}
	switch {
	case len(in.args) == 0:
		return usageError("the PATH to watch is missing; to watch all locks, use /")
	case o.every < leastEvery:
		return usageError("-every %v: want at least %v", o.every, leastEvery)
	case o.limit < 1:
		return usageError("-limit %d: want at least 1", o.limit)
	}
	ctx, stop := signal.NotifyContext(ctx, os.Interrupt, syscall.SIGTERM)
	defer stop()
	var site *page.Site
	if o.http != "" { // checked before the connection is made, because a wrong address is an error of the command line
		if site, err = page.Listen(o.http, o.public, in.store.Name, path, o.every); err != nil {
			return usageError("-http: %w", err)
		}
		defer site.Close()
	}
	locks, err := in.dial(ctx, Options{})
	if err != nil {
		return err
	}
	defer locks.Close()
	follower := &inspect.Follower{Reader: locks.Desk, Path: path, Every: o.every, Limit: o.limit}
	first := true
	show := func(s inspect.Sight) {
		if first && len(s.Events) == 0 {
			in.say("no lock at %s or below it is held or has waiters yet", clean(path))
		}
		first = false
		writeEvents(in, s)
	}
	switch out, ok := in.stdout.(*output).Writer.(*os.File); {
	case site != nil:
		fmt.Fprintf(in.stderr, "showing %s at %s\n", clean(path), site.URL())
		go site.Serve()
		show = site.Show
	case ok && in.output == "text" && isTerminal(out):
		screen := openScreen(in.stdout, out, path, in.store.Name)
		defer screen.close()
		show = screen.draw
	}
	return in.lookFailure(follower.Follow(ctx, show))
}

// writeEvents prints one line for each event.
func writeEvents(in *invocation, s inspect.Sight) {
	for _, e := range s.Events {
		if in.output == "json" {
			_ = writeJSON(in.stdout, e, "") // an error in writing ends the subcommand
			continue
		}
		fmt.Fprintf(in.stdout, "%s %s\n", e.Time.UTC().Format("2006-01-02T15:04:05.000Z"), eventText(e, in.store.Name))
	}
}

// eventText describes an event. The parameter store is the name of the store.
func eventText(e inspect.Event, store string) string {
	who := ""
	if e.Contender != nil {
		who = clean(described(e.Contender))
	}
	text := clean(e.Path)
	switch e.What {
	case inspect.Held:
		text += fmt.Sprintf(" held by %s, token %d, %s", who, e.Contender.Token, waiters(e.Waiting))
	case inspect.Released:
		text += fmt.Sprintf(" released by %s, still held by others", who)
	case inspect.Asked:
		text += fmt.Sprintf(" revoke requested: %s was asked to release it", who)
	case inspect.Queued:
		text += fmt.Sprintf(" queued: %s, #%d", who, e.Contender.Sequence)
	case inspect.Left:
		text += fmt.Sprintf(" no longer awaited by %s", who)
	case inspect.Free:
		text += " free"
	case inspect.Taken:
		text += fmt.Sprintf(" %s; %s", clean(e.Semaphore.Sum(owner)), waiters(e.Waiting))
	case inspect.Disconnected:
		return "no answer from " + store + ": " + clean(e.Text)
	case inspect.Connected:
		return store + " answers again"
	case inspect.GracePeriod:
		return store + ": " + clean(e.Text)
	case inspect.Granting:
		return store + " grants locks again"
	}
	if e.Unseen > 0 {
		text += fmt.Sprintf(" (%d came and went unseen)", e.Unseen)
	}
	return text
}

package command

import (
	"cmp"
	"context"
	"errors"
	"flag"
	"io"
	"log/slog"
	"os"
	"os/signal"
	"slices"
	"strings"
	"syscall"
	"time"
	"unicode"

	"github.com/tierlock/tierlock/cmd/tierlock/internal/inspect"
	"github.com/tierlock/tierlock/tier"
)

// A Store is everything that the command knows about one store.
type Store struct {
	Name    string            // what people call the store
	Schemes []string          // of its URLs
	Example string            // such a URL
	About   string            // what help says of its URLs, and of the variables that it takes
	Auth    string            // what its credentials look like
	NoTLS   string            // what to do instead of the -tls flags; "" if they are for this store
	Notes   map[string]string // what help says of the store, by the name of the subcommand

	// Check reports errors in an address that show without a server.
	Check func(*Address) error
	// ValidatePath returns an error for a path that cannot be a lock.
	ValidatePath func(path string) error
	// Dial connects, and returns once a server has answered or ctx is done. An error that is neither caused by ctx nor Unreachable is
	// permanent.
	Dial func(ctx context.Context, a *Address, o Options) (*Locks, error)
	// Unreachable reports whether an error says that no server is available.
	Unreachable func(error) bool
	// Tasks are the subcommands that not every store has. Help explains one as the first store has it, with the notes of the others.
	Tasks []Task
}

// A Task is a subcommand without arguments.
type Task struct {
	Name, About, Help string              // as of a subcommand
	Flags             func(*flag.FlagSet) // its own; nil if there are none
	Alone             bool                // it connects to nothing, and may go on until it is interrupted
	// Do writes its output to w. Unless the task is alone, it connects to the address. It runs until ctx is done.
	Do func(ctx context.Context, a *Address, w io.Writer) error
}

func (s *Store) has(scheme string) bool { return slices.Contains(s.Schemes, scheme) }

func (t Task) subcommand(of *Store) *subcommand {
	usage := ""
	if t.Flags != nil {
		usage = "[flags]"
	}
	return &subcommand{name: t.Name, usage: usage, about: t.About, help: t.Help, flags: t.Flags, alone: t.Alone, of: of, run: t.run}
}

func (t Task) run(ctx context.Context, in *invocation) error {
	if len(in.args) > 0 {
		return usageError("%q is too much; %s takes no arguments", in.args[0], t.Name)
	}
	if t.Alone {
		ctx, stop := signal.NotifyContext(ctx, os.Interrupt, syscall.SIGTERM)
		defer stop()
		return usage(t.Do(ctx, nil, in.stdout))
	}
	ctx, cancel := context.WithTimeout(ctx, in.timeout)
	defer cancel()
	return in.lookFailure(in.address.mask(t.Do(ctx, &in.address, in.stdout)))
}

// Options are the requirements of a subcommand on its connection.
type Options struct {
	Session time.Duration // for how long a lock of a process that has died stays taken
	Label   string        // that others see in the queue
	Logger  *slog.Logger  // a store gets one in any case
}

// Locks are the locks of a store over one connection.
type Locks struct {
	*tier.Registry
	// Margin returns for how long after the end of its lease a lock is not given to others.
	Margin func() time.Duration
	// Desk reads the locks, and asks their holders.
	Desk Desk
	// Disconnect is called after the registry is closed, and ends everything else; nil if there is nothing.
	Disconnect func() error
}

// Close gives up all locks and waits.
func (l *Locks) Close() error {
	err := l.Registry.Close()
	if l.Disconnect != nil {
		err = errors.Join(err, l.Disconnect())
	}
	return err
}

// A Desk has what operators can do with a store. If a store does not support a method, the error wraps [errors.ErrUnsupported], and says
// why and what to do instead.
type Desk interface {
	inspect.Reader
	// Revoke asks the holders for the lock, and returns them as they were before.
	Revoke(ctx context.Context, path string) ([]inspect.Contender, error)
	// Examine returns findings about everything at a path.
	Examine(ctx context.Context, path string) (*inspect.Report, error)
}

const (
	connectTimeout = 10 * time.Second
	defaultSession = 15 * time.Second
)

// dial connects, within -connect-timeout. Its error has the exit status.
func (in *invocation) dial(ctx context.Context, o Options) (*Locks, error) {
	wait, cancel := context.WithTimeout(ctx, in.timeout)
	defer cancel()
	o.Label, o.Session = readable(o.Label), cmp.Or(o.Session, defaultSession)
	if o.Logger == nil { // what the command says is all that it says
		o.Logger = slog.New(slog.DiscardHandler)
	}
	locks, err := in.store.Dial(wait, &in.address, o)
	err = in.address.mask(err)
	signal := (*failure)(nil)
	switch {
	case err == nil:
		return locks, nil
	case errors.As(err, &signal):
		return nil, signal
	case wait.Err() != nil || in.store.Unreachable(err):
		return nil, fail(exitUnavailable, "%w", err)
	}
	return nil, usage(err)
}

// readable turns any text into a valid label.
func readable(text string) string {
	text = strings.Map(func(r rune) rune {
		if !unicode.IsPrint(r) || r == unicode.ReplacementChar {
			return '.'
		}
		return r
	}, strings.ToValidUTF8(text, "."))
	const most = 64
	if runes := []rune(text); len(runes) > most {
		text = string(runes[:most-1]) + "…"
	}
	return text
}

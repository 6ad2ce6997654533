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
	Name    string            // the usual name of the store
	Schemes []string          // the schemes of its URLs
	Example string            // an example of its URLs
	About   string            // the text of the help about its URLs and about the environment variables that it uses
	Auth    string            // the format of its credentials
	NoTLS   string            // what to use instead of the -tls flags; "" if the store uses these flags
	Notes   map[string]string // the text of the help about the store; the key is the name of the subcommand

	// Check reports errors in an address that can be found without a server.
	Check func(*Address) error
	// ValidatePath returns an error if path cannot be the path of a lock.
	ValidatePath func(path string) error
	// Dial connects to the store. It returns after a server has answered, or when ctx ends. If the error is not caused by ctx, and
	// Unreachable returns false for it, the error is permanent.
	Dial func(ctx context.Context, a *Address, o Options) (*Locks, error)
	// Unreachable reports whether an error says that no server is available.
	Unreachable func(error) bool
	// Tasks has the subcommands that not every store has. Help describes such a subcommand as the first store has it, and adds the notes of
	// the other stores.
	Tasks []Task
}

// A Task is a subcommand without arguments.
type Task struct {
	Name, About, Help string              // like the fields of a subcommand
	Flags             func(*flag.FlagSet) // adds its own flags; nil if there are none
	Alone             bool                // the task connects to no store, and may run until it is interrupted
	// Do runs the task until it is done or ctx ends. It writes its output to w. Unless the task is alone, Do connects to the address.
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
		return usageError("unexpected argument %q; %s takes no arguments", in.args[0], t.Name)
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

// The type Options has the requirements of a subcommand for its connection.
type Options struct {
	Session time.Duration // for how long a lock stays taken after its process has died
	Label   string        // the label that other processes see in the queue
	Logger  *slog.Logger  // never nil when a store gets it
	// Observer is of all locks; nil if there is none. [Options.Locks] and [Options.Registry] contain it.
	Observer *tier.Observer
}

// Locks returns the options of all locks.
func (o Options) Locks() (all []tier.Option) {
	if o.Observer != nil {
		all = append(all, tier.WithObserver(*o.Observer))
	}
	return all
}

// Registry returns the options of a registry. A lazy start is enough, because the server has answered, and doctor shows what is missing.
func (o Options) Registry(margin time.Duration) []tier.RegistryOption {
	all := []tier.RegistryOption{
		tier.WithLabel(o.Label), tier.WithLogger(o.Logger), tier.WithLeaseTTL(o.Session), tier.WithLeaseMargin(margin), tier.WithLazyStart(),
	}
	for _, one := range o.Locks() {
		all = append(all, one)
	}
	return all
}

// A Locks has the locks of a store over one connection.
type Locks struct {
	*tier.Registry
	// Margin returns for how long after the end of its lease the store does not grant a lock to other processes.
	Margin func() time.Duration
	// Desk reads the locks, and sends requests to their holders.
	Desk Desk
	// Disconnect is called after the registry is closed. It ends everything else. It is nil if there is nothing to end.
	Disconnect func() error
}

// Close releases all locks, and waits until everything has ended.
func (l *Locks) Close() error {
	err := l.Registry.Close()
	if l.Disconnect != nil {
		err = errors.Join(err, l.Disconnect())
	}
	return err
}

// A Desk has the operations that operators can do on a store. If a store does not support an operation, the error wraps
// [errors.ErrUnsupported]. The text of the error says why, and what to do instead.
type Desk interface {
	inspect.Reader
	// Revoke asks the holders for the lock. It returns the holders in their state before the request.
	Revoke(ctx context.Context, path string) ([]inspect.Contender, error)
	// Examine returns findings about everything at a path.
	Examine(ctx context.Context, path string) (*inspect.Report, error)
}

const (
	connectTimeout = 10 * time.Second
	defaultSession = 15 * time.Second
)

// dial connects within the time of -connect-timeout. Its error has the exit status.
func (in *invocation) dial(ctx context.Context, o Options) (*Locks, error) {
	wait, cancel := context.WithTimeout(ctx, in.timeout)
	defer cancel()
	o.Label, o.Session = readable(o.Label), cmp.Or(o.Session, defaultSession)
	if o.Logger == nil { // the messages of the command are enough
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

// readable replaces the characters of a text that a label must not have.
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

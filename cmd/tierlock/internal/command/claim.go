package command

import (
	"context"
	"fmt"
	"os"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/tierlock/tierlock/cmd/tierlock/internal/inspect"
	"github.com/tierlock/tierlock/tier"
)

// A claim is the thing that run acquires: a lock, or permits of a semaphore.
type claim interface {
	acquire(ctx context.Context) (hold, error)
	try(ctx context.Context) (hold, error)
	Contenders(ctx context.Context) ([]tier.Contender, error)
	// inTheWay describes the contenders that block the claim. It returns "" if there are none.
	inTheWay(contenders []tier.Contender) string
	// outer returns the index of the contender that belongs to an enclosing run of this process. It returns -1 if there is none.
	outer(contenders []tier.Contender) int
}

// A hold is an acquired claim.
type hold interface {
	Lost() <-chan struct{}
	Err() error
	ValidUntil() time.Time
	Token() int64
	Release() error
}

func (o *runOptions) claim(locks *tier.Registry, path string) claim {
	switch {
	case o.permits > 0:
		return permits{locks.Semaphore(path, o.permits), o.permits, max(o.weight, 1)}
	case o.share:
		return lock{locks.RWMutex(path).Reader(), true}
	}
	return lock{locks.Mutex(path), false}
}

// A lock is a claim that is acquired exclusively or for reading.
type lock struct {
	*tier.Mutex
	reads bool
}

func (l lock) acquire(ctx context.Context) (hold, error) { return holdOf(l.Acquire(ctx)) }
func (l lock) try(ctx context.Context) (hold, error)     { return holdOf(l.TryAcquire(ctx)) }

// inTheWay names the holder. For a reader it names the first contender that does not read.
func (l lock) inTheWay(queue []tier.Contender) string {
	first := 0
	for l.reads && first < len(queue) && queue[first].Shared {
		first++
	}
	switch {
	case first == len(queue) || queue[first].InGracePeriod:
		return ""
	case first > 0:
		return "wanted, and not to read, by " + nameOf(&queue[first])
	}
	readers := 0
	for readers < len(queue) && queue[readers].Shared {
		readers++
	}
	return "held by " + nameOf(&queue[0]) + more(readers)
}

func (l lock) outer(queue []tier.Contender) int {
	return slices.IndexFunc(queue, func(c tier.Contender) bool {
		return os.Getenv("TIERLOCK_PATH") == l.Path() && os.Getenv("TIERLOCK_TOKEN") == strconv.FormatInt(c.Token, 10)
	})
}

// A permits is a claim on permits of a semaphore.
type permits struct {
	*tier.Semaphore
	all, weight int
}

func (p permits) acquire(ctx context.Context) (hold, error) { return holdOf(p.Acquire(ctx, p.weight)) }
func (p permits) try(ctx context.Context) (hold, error)     { return holdOf(p.TryAcquire(ctx, p.weight)) }

// inTheWay names the first holder of permits and the first waiter.
func (p permits) inTheWay(contenders []tier.Contender) string {
	waiting := slices.IndexFunc(contenders, func(c tier.Contender) bool { return c.Permits == 0 })
	if waiting < 0 {
		waiting = len(contenders)
	}
	use := inspect.Permits{All: p.all}
	for _, c := range contenders[:waiting] {
		use.InUse += c.Permits
	}
	var parts []string
	if waiting > 0 {
		parts = append(parts, fmt.Sprintf("%s, %d by %s%s", use, contenders[0].Permits, nameOf(&contenders[0]), more(waiting)))
	}
	host, _ := os.Hostname()
	if waiting < len(contenders) && (contenders[waiting].PID != os.Getpid() || contenders[waiting].Host != host) {
		parts = append(parts, "next is "+nameOf(&contenders[waiting]))
	}
	return strings.Join(parts, "; ")
}

// outer returns -1, because a nested run can often get more permits.
func (p permits) outer([]tier.Contender) int { return -1 }

// holdOf returns a nil hold if err is not nil. A nil *tier.Hold in the interface hold would not equal nil.
func holdOf[H hold](h H, err error) (hold, error) {
	if err != nil {
		return nil, err
	}
	return h, nil
}

// nameOf returns the name of a contender, from the description that it has given.
func nameOf(c *tier.Contender) string {
	who := c.ID
	if c.PID != 0 {
		who = fmt.Sprintf("process %d on %s", c.PID, c.Host)
	}
	if c.Label != "" {
		who += fmt.Sprintf(" (%s)", c.Label)
	}
	return who
}

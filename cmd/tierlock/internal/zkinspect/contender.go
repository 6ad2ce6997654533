package zkinspect

import (
	"fmt"
	"time"

	"github.com/tierlock/tierlock/cmd/tierlock/internal/inspect"
	"github.com/tierlock/tierlock/internal/second"
	"github.com/tierlock/tierlock/internal/zkqueue"
)

// Describe returns a queue in the form that is displayed.
func Describe(queue []zkqueue.Contender, now time.Time) []inspect.Contender {
	var line line
	var contenders []inspect.Contender
	for _, read := range queue {
		c := inspect.Contender{
			Node: second.Text(read.Node), Pair: second.Text(read.Pair), Kind: string(kindOf(read)), Sequence: read.Sequence,
			Readable: !read.Since.IsZero(), Token: read.Token, Ephemeral: read.Session != 0,
			Host: read.Host, PID: read.PID, Label: read.Label, LingerMS: read.Linger.Milliseconds(), Asked: read.Asked,
		}
		if c.Readable {
			c.Since = read.Since
			c.AgeMS = max(0, now.Sub(read.Since).Milliseconds())
		}
		if c.Ephemeral {
			c.Session = fmt.Sprintf("0x%x", uint64(read.Session))
		}
		if c.PID == 0 && c.Host == "" && !c.Asked {
			c.Content = second.Text(string(read.Data))
		}
		line.place(&c)
		contenders = append(contenders, c)
	}
	return contenders
}

// A line is the part of a queue that is ahead of a contender.
type line struct {
	ahead map[sort]*group
}

// A group has the contenders of one sort.
type group struct {
	count int
	last  *inspect.Contender
}

// place finds out for which contenders c waits, and adds c to the line.
func (l *line) place(c *inspect.Contender) {
	own := sortOf(c)
	for other, g := range l.ahead {
		switch own.waitsFor(other) {
		case yes:
			c.Ahead += g.count
			if c.Behind == "" || g.last.Sequence > c.Nearest {
				c.Behind, c.Nearest = g.last.Node, g.last.Sequence
			}
		case perhaps:
			c.Perhaps += g.count
		case no:
			if shared(own, other) {
				c.Beside += g.count
			} else {
				c.Ignored += g.count
			}
		}
	}
	switch {
	case c.Ahead > 0:
		c.State = inspect.Waits
	case c.Perhaps > 0:
		c.State = inspect.Perhaps
	default:
		c.State = inspect.Holds
	}
	if l.ahead == nil {
		l.ahead = make(map[sort]*group)
	}
	if l.ahead[own] == nil {
		l.ahead[own] = new(group)
	}
	copied := *c
	l.ahead[own].count++
	l.ahead[own].last = &copied
}

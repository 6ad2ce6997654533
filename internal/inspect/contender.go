package inspect

import (
	"fmt"
	"time"

	"github.com/tierlock/tierlock/zklock"
)

// A State is what can be told of a contender by those ahead of it.
type State string

const (
	Holds   State = "holds"   // it waits for nobody
	Waits   State = "waits"   // it waits for somebody
	Perhaps State = "perhaps" // it holds unless its library is set up to wait for one of those ahead
	Next    State = "next"    // it takes permits of a semaphore as soon as there are enough
)

// A Contender is one node in a queue, or a pair of nodes that is one.
type Contender struct {
	Node      string      `json:"node"`
	Pair      string      `json:"pair,omitempty"` // second node, for kazoo
	Kind      zklock.Kind `json:"kind"`
	Sequence  int32       `json:"sequence"`
	State     State       `json:"state"`
	Ahead     int         `json:"ahead"`                   // how many before it it waits for
	Behind    string      `json:"waits_for,omitempty"`     // the nearest of them
	Unsure    int         `json:"perhaps_ahead,omitempty"` // how many it waits for only if set up so
	Beside    int         `json:"beside,omitempty"`        // how many before it read as it does
	Ignored   int         `json:"ignores,omitempty"`       // how many others before it it does not wait for
	Readable  bool        `json:"readable"`                // else what follows is unknown
	Token     int64       `json:"token"`
	Session   string      `json:"session,omitempty"`
	Ephemeral bool        `json:"ephemeral"` // else it outlives its process
	Since     time.Time   `json:"node_since,omitzero"`
	AgeMS     int64       `json:"node_age_ms"` // of the node, not of a hold
	Host      string      `json:"host,omitempty"`
	PID       int         `json:"pid,omitempty"`
	Label     string      `json:"label,omitempty"`
	LingerMS  int64       `json:"linger_ms,omitempty"`
	Asked     bool        `json:"asked,omitempty"`   // for the lock; in its node that has replaced what it says of itself
	Content   string      `json:"content,omitempty"` // of another library's node

	behind int32 // the number of the nearest
	read   zklock.Contender
}

// maxContent is how much is shown of what another library writes into its nodes.
const maxContent = 200

// Age is that of the node, by the clocks of server and machine.
func (c Contender) Age() time.Duration { return time.Duration(c.AgeMS) * time.Millisecond }

// KindName is what people call the kind.
func (c Contender) KindName() string { return kindName(c.Kind) }

// BehindSequence is the number of the nearest contender that c waits for.
func (c Contender) BehindSequence() int32 { return c.behind }

// Describe turns a queue into what is shown of it.
func Describe(queue []zklock.Contender, now time.Time) []Contender {
	var line line
	var contenders []Contender
	for _, read := range queue {
		c := Contender{
			Node: read.Node, Pair: read.Pair, Kind: read.Kind, Sequence: read.Sequence,
			Readable: !read.Since.IsZero(), Token: read.Token, Ephemeral: read.Session != 0,
			Host: read.Host, PID: read.PID, Label: read.Label, LingerMS: read.Linger.Milliseconds(), Asked: read.Asked,
			read: read,
		}
		if c.Readable {
			c.Since = read.Since
			c.AgeMS = max(0, now.Sub(read.Since).Milliseconds())
		}
		if c.Ephemeral {
			c.Session = fmt.Sprintf("0x%x", uint64(read.Session))
		}
		if c.PID == 0 && c.Host == "" && !c.Asked {
			c.Content = string(read.Data[:min(len(read.Data), maxContent)])
		}
		line.place(&c)
		contenders = append(contenders, c)
	}
	return contenders
}

// A line is a queue up to some contender.
type line struct {
	ahead map[sort]*group
}

// A group is those of one sort.
type group struct {
	count int
	last  *Contender
}

// place tells what c waits for, and has it join.
func (l *line) place(c *Contender) {
	own := sortOf(c.read)
	for other, g := range l.ahead {
		switch own.waitsFor(other) {
		case yes:
			c.Ahead += g.count
			if c.Behind == "" || g.last.Sequence > c.behind {
				c.Behind, c.behind = g.last.Node, g.last.Sequence
			}
		case perhaps:
			c.Unsure += g.count
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
		c.State = Waits
	case c.Unsure > 0:
		c.State = Perhaps
	default:
		c.State = Holds
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

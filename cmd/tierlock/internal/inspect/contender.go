package inspect

import (
	"fmt"
	"strings"
	"time"
)

// A State is what a contender does, as the contenders ahead of it show.
type State string

const (
	Holds   State = "holds"   // it holds the lock
	Waits   State = "waits"   // it waits for another contender
	Perhaps State = "perhaps" // it holds unless its library is set up to wait for one of those ahead
	Next    State = "next"    // it takes permits of a semaphore as soon as there are enough

	InGracePeriod State = "grace-period" // it is first, and gets the lock when the grace period ends
)

// These kinds of contenders exist in every store.
const (
	KindTierlock     = "tierlock"
	KindTierlockRead = "tierlock-read"
	KindOther        = "other" // of another program, which says nothing of itself
)

// A Contender is one process in a queue. In ZooKeeper it is a node, or a pair of nodes that is one.
type Contender struct {
	Node      string    `json:"node"`           // its name in the queue
	Pair      string    `json:"pair,omitempty"` // second node, for kazoo
	Kind      string    `json:"kind"`
	Sequence  int32     `json:"sequence"` // in ZooKeeper the number of its node, elsewhere its place in the queue
	State     State     `json:"state"`
	Ahead     int       `json:"ahead"`                   // how many before it it waits for
	Behind    string    `json:"waits_for,omitempty"`     // the nearest of them
	Perhaps   int       `json:"perhaps_ahead,omitempty"` // how many it waits for only if set up so
	Beside    int       `json:"beside,omitempty"`        // how many before it read as it does
	Ignored   int       `json:"ignores,omitempty"`       // how many others before it it does not wait for
	Readable  bool      `json:"readable"`                // else what follows is unknown
	Token     int64     `json:"token"`
	Session   string    `json:"session,omitempty"`
	Ephemeral bool      `json:"ephemeral"` // else it outlives its process
	Since     time.Time `json:"node_since,omitzero"`
	AgeMS     int64     `json:"node_age_ms"` // of the node, not of a hold
	Host      string    `json:"host,omitempty"`
	PID       int       `json:"pid,omitempty"`
	Label     string    `json:"label,omitempty"`
	LingerMS  int64     `json:"linger_ms,omitempty"`
	Asked     bool      `json:"asked,omitempty"`   // for the lock; Curator's Revoker replaces what it says of itself by that
	Content   string    `json:"content,omitempty"` // of another library's node

	Nearest int32 `json:"-"` // the number of the nearest that it waits for
}

// Age returns the age of the node, by the clocks of the server and of this machine.
func (c Contender) Age() time.Duration { return time.Duration(c.AgeMS) * time.Millisecond }

// Aged reports whether the age is known.
func (c Contender) Aged() bool { return c.Readable && (c.AgeMS > 0 || !c.Since.IsZero()) }

// KindName returns the readable name of the kind. It includes the library whose read/write lock the contender is a side of.
func (c Contender) KindName() string {
	if c.Kind == "read" || c.Kind == "write" {
		return "curator " + c.Kind
	}
	return strings.ReplaceAll(c.Kind, "-", " ")
}

// explain describes a contender and what it waits for.
func (c *Contender) explain() string {
	who := c.KindName()
	if c.Pair != "" {
		who += " WithKazoo"
	}
	switch {
	case c.PID != 0:
		who += fmt.Sprintf(` on host "%s", pid %d`, c.Host, c.PID)
		if c.Label != "" {
			who += fmt.Sprintf(`, label "%s"`, c.Label)
		}
	case c.Content != "":
		who += fmt.Sprintf(`, says "%s"`, c.Content)
	}
	switch c.State {
	case Waits:
		return fmt.Sprintf("%s; waits for %d ahead of it, the nearest #%d", who, c.Ahead, c.Nearest)
	case InGracePeriod:
		return who + "; is first, and does not have the lock yet"
	case Perhaps:
		return fmt.Sprintf("%s; waits for %d ahead of it if configured so, and otherwise holds the lock", who, c.Perhaps)
	}
	switch {
	case c.Ignored > 0:
		return fmt.Sprintf("%s; holds the lock, past %d ahead of it", who, c.Ignored)
	case c.Beside > 0:
		return fmt.Sprintf("%s; holds the lock together with %d readers ahead of it", who, c.Beside)
	}
	return who + "; holds the lock"
}

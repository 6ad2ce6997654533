package inspect

import (
	"fmt"
	"strings"
	"time"
)

// A State is the state of a contender, as far as the contenders ahead of it show.
type State string

const (
	Holds   State = "holds"   // the contender holds the lock
	Waits   State = "waits"   // the contender waits for another contender
	Perhaps State = "perhaps" // it holds the lock, unless its library is configured to wait for a contender ahead
	Next    State = "next"    // the contender takes permits of a semaphore as soon as there are enough

	InGracePeriod State = "grace-period" // the contender is first in the queue, and gets the lock when the grace period ends
)

// These kinds of contenders exist in every store.
const (
	KindTierlock     = "tierlock"
	KindTierlockRead = "tierlock-read"
	KindOther        = "other" // a contender of another program, which has no description
)

// A Contender is one process in a queue. In ZooKeeper it is a node, or a pair of nodes that counts as one contender.
type Contender struct {
	Node     string `json:"node"`           // the name in the queue
	Pair     string `json:"pair,omitempty"` // the name of the second node, which is for kazoo
	Kind     string `json:"kind"`
	Sequence int32  `json:"sequence"` // in ZooKeeper the sequence number of the node, elsewhere the place in the queue
	State    State  `json:"state"`
	Ahead    int    `json:"ahead"`               // the number of contenders ahead for which it waits
	Behind   string `json:"waits_for,omitempty"` // the nearest contender for which it waits
	// The number of contenders ahead for which it waits only if its library is configured to wait for them.
	Perhaps   int       `json:"perhaps_ahead,omitempty"`
	Beside    int       `json:"beside,omitempty"`  // the number of readers ahead, if it is a reader as well
	Ignored   int       `json:"ignores,omitempty"` // the number of other contenders ahead for which it does not wait
	Readable  bool      `json:"readable"`          // if it is false, the following fields are unknown
	Token     int64     `json:"token"`
	Session   string    `json:"session,omitempty"`
	Ephemeral bool      `json:"ephemeral"` // if it is false, the contender outlives its process
	Since     time.Time `json:"node_since,omitzero"`
	AgeMS     int64     `json:"node_age_ms"` // the age of the node, and not of a hold
	Host      string    `json:"host,omitempty"`
	PID       int       `json:"pid,omitempty"`
	Label     string    `json:"label,omitempty"`
	LingerMS  int64     `json:"linger_ms,omitempty"`
	Asked     bool      `json:"asked,omitempty"`   // it was asked for the lock; the request of Curator's Revoker replaces the description
	Content   string    `json:"content,omitempty"` // the content of a node of another library

	Nearest int32 `json:"-"` // the sequence number of the nearest contender for which it waits
}

// Age returns the age of the node. It depends on the clocks of the server and of this machine.
func (c Contender) Age() time.Duration { return time.Duration(c.AgeMS) * time.Millisecond }

// Aged reports whether the age of the node is known.
func (c Contender) Aged() bool { return c.Readable && (c.AgeMS > 0 || !c.Since.IsZero()) }

// KindName returns a readable name of the kind. For a reader or a writer of a read/write lock,
// the name includes the client library that created the contender.
func (c Contender) KindName() string {
	if c.Kind == "read" || c.Kind == "write" {
		return "curator " + c.Kind
	}
	return strings.ReplaceAll(c.Kind, "-", " ")
}

// explain describes a contender, and for which contenders it waits.
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
		return fmt.Sprintf("%s; waits, with %d ahead of it: the nearest is #%d", who, c.Ahead, c.Nearest)
	case InGracePeriod:
		return who + "; is first, and does not have the lock yet"
	case Perhaps:
		return fmt.Sprintf("%s; holds the lock, unless its library is configured to wait for the %d ahead of it", who, c.Perhaps)
	}
	switch {
	case c.Ignored > 0:
		return fmt.Sprintf("%s; holds the lock, although %d contenders are ahead of it", who, c.Ignored)
	case c.Beside > 0:
		return fmt.Sprintf("%s; holds the lock together with %d readers ahead of it", who, c.Beside)
	}
	return who + "; holds the lock"
}

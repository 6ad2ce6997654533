package inspect

import (
	"fmt"
	"slices"
	"strings"
	"time"
)

// A Permits has the numbers of permits of a semaphore. The semaphore belongs to tierlock, or is Curator's InterProcessSemaphoreV2, which
// has the same layout. Curator's InterProcessSemaphoreMutex is such a semaphore with one permit.
type Permits struct {
	All   int `json:"permits,omitempty"` // 0 if the path does not have the number; Curator never stores it
	InUse int `json:"in_use"`
}

func (p Permits) String() string {
	if p.All == 0 {
		return CountPermits(p.InUse) + " in use"
	}
	return fmt.Sprintf("%d of %d permits in use", p.InUse, p.All)
}

// CountPermits formats a number of permits.
func CountPermits(n int) string {
	if n == 1 {
		return "1 permit"
	}
	return fmt.Sprintf("%d permits", n)
}

// A Semaphore is the state of a semaphore.
type Semaphore struct {
	Permits
	Shares []Share     `json:"shares"` // of the permits in use
	Queue  []Contender `json:"queue"`  // the waiters for permits; the first one takes permits as soon as there are enough
}

// Add adds the permits of a contender to the share of its process.
func (s *Semaphore) Add(c *Contender, permits int) {
	share := Share{
		Readable: c.Readable, Session: c.Session, Ephemeral: c.Ephemeral, Since: c.Since, AgeMS: c.AgeMS,
		Host: c.Host, PID: c.PID, Label: c.Label, Content: c.Content,
	}
	at := slices.IndexFunc(s.Shares, func(t Share) bool { return c.Readable && t.owner() == share.owner() })
	if at < 0 {
		at, s.Shares = len(s.Shares), append(s.Shares, share)
	}
	t := &s.Shares[at]
	t.Count, t.Nodes = t.Count+permits, append(t.Nodes, c.Node)
	if c.Token != 0 && !t.Has(c.Token) {
		t.Tokens = append(t.Tokens, c.Token)
	}
}

// differs reports whether two reads of a semaphore would be displayed differently. If there was no previous read, s is nil.
func (s *Semaphore) differs(after *Semaphore) bool {
	if s == nil {
		return after.InUse > 0 || len(after.Queue) > 0
	}
	alike := func(a, b Share) bool { return a.Count == b.Count && a.owner() == b.owner() }
	return s.Permits != after.Permits || len(s.Queue) != len(after.Queue) || !slices.EqualFunc(s.Shares, after.Shares, alike)
}

// Sum describes how many permits are in use, and which processes have them. The function name returns the name of a process. If there are
// many processes, Sum names only the first ones.
func (s *Semaphore) Sum(name func(*Contender) string) string {
	const most = 3
	var parts []string
	for i := range s.Shares[:min(len(s.Shares), most)] {
		parts = append(parts, fmt.Sprintf("%d by %s", s.Shares[i].Count, name(s.Shares[i].Owner())))
	}
	if left := len(s.Shares) - most; left > 0 {
		parts = append(parts, fmt.Sprintf("and %d more", left))
	}
	if len(parts) == 0 {
		return s.Permits.String()
	}
	return s.Permits.String() + ": " + strings.Join(parts, ", ")
}

// A Share has the permits of one process, or of one session of another library.
type Share struct {
	Count     int       `json:"count"`
	Nodes     []string  `json:"nodes"`    // one node for each permit
	Tokens    []int64   `json:"tokens"`   // one token for each time that the process took permits
	Readable  bool      `json:"readable"` // if it is false, the following fields are unknown
	Session   string    `json:"session,omitempty"`
	Ephemeral bool      `json:"ephemeral"` // if it is false, the permits outlive their process
	Since     time.Time `json:"node_since,omitzero"`
	AgeMS     int64     `json:"node_age_ms"` // the age of the oldest node
	Host      string    `json:"host,omitempty"`
	PID       int       `json:"pid,omitempty"`
	Label     string    `json:"label,omitempty"`
	Content   string    `json:"content,omitempty"`
}

// Has reports whether some of the permits were taken with the given token.
func (s *Share) Has(token int64) bool { return slices.Contains(s.Tokens, token) }

// Owner returns the process to which the share belongs.
func (s *Share) Owner() *Contender {
	return &Contender{
		Node: s.Nodes[0], State: Holds, Readable: s.Readable, Session: s.Session, Ephemeral: s.Ephemeral, Since: s.Since, AgeMS: s.AgeMS,
		Host: s.Host, PID: s.PID, Label: s.Label, Content: s.Content,
	}
}

// The method owner returns a key that distinguishes processes.
func (s *Share) owner() [5]string {
	return [...]string{s.Session, s.Host, fmt.Sprint(s.PID), s.Label, s.Content}
}

package inspect

import (
	"fmt"
	"time"
)

// Permits are those of a semaphore: tierlock's, or Curator's InterProcessSemaphoreV2, which has the
// same layout, as has its InterProcessSemaphoreMutex with one permit.
type Permits struct {
	All   int `json:"permits,omitempty"` // 0 if the path does not say, as Curator's never does
	InUse int `json:"in_use"`
}

func (p Permits) String() string {
	if p.All == 0 {
		return CountPermits(p.InUse) + " in use"
	}
	return fmt.Sprintf("%d of %d permits in use", p.InUse, p.All)
}

// CountPermits is a number of permits in words.
func CountPermits(n int) string {
	if n == 1 {
		return "1 permit"
	}
	return fmt.Sprintf("%d permits", n)
}

// A Semaphore is what is known of one.
type Semaphore struct {
	Permits
	Shares []Share     `json:"shares"` // of those in use
	Queue  []Contender `json:"queue"`  // for permits; the first takes some as soon as there are enough
}

// A Share is the permits that one process has, or one session of another library.
type Share struct {
	Count     int       `json:"count"`
	Nodes     []string  `json:"nodes"`    // one for each
	Readable  bool      `json:"readable"` // else what follows is unknown
	Session   string    `json:"session,omitempty"`
	Ephemeral bool      `json:"ephemeral"` // else they outlive their process
	Since     time.Time `json:"node_since,omitzero"`
	AgeMS     int64     `json:"node_age_ms"` // of the oldest node
	Host      string    `json:"host,omitempty"`
	PID       int       `json:"pid,omitempty"`
	Label     string    `json:"label,omitempty"`
	Content   string    `json:"content,omitempty"`
}

package advisory

import (
	"cmp"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/tierlock/tierlock/internal/second"
)

// A place is one session in the queue for a lock.
type place struct {
	pid            string
	reads, granted bool
	name           string // of its application
}

// places takes the rows of a look: for each key, those that have the lock in the order of their tokens, then those that wait. A session
// may have the lock in both modes for a moment.
func places(rows [][][]byte) map[string][]place {
	queues := make(map[string][]place)
	for _, row := range rows {
		key, p := string(row[0]), place{string(row[1]), string(row[2]) == "t", string(row[3]) == "t", string(row[4])}
		queue := queues[key]
		if twin := slices.IndexFunc(queue, func(q place) bool { return q.pid == p.pid }); twin >= 0 {
			queue[twin].reads = queue[twin].reads && p.reads
			continue
		}
		queues[key] = append(queue, p)
	}
	for _, queue := range queues {
		slices.SortStableFunc(queue, func(a, b place) int {
			if a.granted && b.granted {
				return cmp.Compare(a.describe().Token, b.describe().Token)
			}
			return 0
		})
	}
	return queues
}

// about is what a contender that queues now says of itself. The name of its session's application is "tierlock", its token, 1 if it was
// asked for the lock, and that. The server cuts it to 63 bytes, which leaves some 20 for host and label.
func (s *Store) about(linger time.Duration) string { return s.self.Now(linger).Line(36) }

func (p place) ours() bool { return strings.HasPrefix(p.name, "tierlock ") }

// describe is what a place tells of its contender. One that waits has no token yet.
func (p place) describe() second.Contender {
	c := second.Contender{ID: p.pid, Shared: p.reads}
	fields := strings.SplitN(p.name, " ", 4)
	if !p.ours() || len(fields) < 4 {
		return c
	}
	if p.granted {
		c.Token, _ = strconv.ParseInt(fields[1], 10, 64)
		c.Asked = fields[2] == "1"
	}
	c.ReadLine(fields[3], 36)
	return c
}

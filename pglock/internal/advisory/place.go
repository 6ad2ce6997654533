package advisory

import (
	"cmp"
	"os"
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

// about is what a contender that queues now says of itself: pid, milliseconds of linger, milliseconds since 1970, host and label. The name
// of its session's application is "tierlock", its token, 1 if it was asked for the lock, and that. The server cuts it to 63 bytes, which
// leaves some 20 for the last two.
func (s *Store) about(linger time.Duration) string {
	number := func(n int64) string { return strconv.FormatInt(n, 36) }
	pid, now := number(int64(os.Getpid())), number(time.Now().UnixMilli())
	return strings.Join([]string{pid, number(linger.Milliseconds()), now, s.host, s.config.Label}, " ")
}

func (p place) ours() bool { return strings.HasPrefix(p.name, "tierlock ") }

// describe is what a place tells of its contender. One that waits has no token yet.
func (p place) describe() second.Contender {
	c := second.Contender{ID: p.pid, Shared: p.reads}
	fields := strings.SplitN(p.name, " ", 7)
	if !p.ours() || len(fields) < 7 {
		return c
	}
	number := func(text string, base int) int64 {
		n, _ := strconv.ParseInt(text, base, 64)
		return n
	}
	if p.granted {
		c.Token, c.Asked = number(fields[1], 10), fields[2] == "1"
	}
	c.PID = int(number(fields[3], 36))
	c.Linger = time.Duration(number(fields[4], 36)) * time.Millisecond
	c.Since = time.UnixMilli(number(fields[5], 36)).UTC()
	host, label, _ := strings.Cut(fields[6], " ")
	c.Host, c.Label = second.Text(host), second.Text(label)
	return c
}

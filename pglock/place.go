package pglock

import (
	"strconv"
	"strings"
	"time"

	"github.com/tierlock/tierlock/internal/second"
)

// A place is one session in the queue for a lock, as a contender whose ID is the pid of the server's process.
type place struct {
	second.Contender
	granted bool
	ours    bool // of this package
}

// places takes the rows of a look.
func places(rows [][][]byte) map[string][]place {
	queues := make(map[string][]place)
	for _, row := range rows {
		key := string(row[0])
		queues[key] = append(queues[key], placeOf(string(row[1]), string(row[2]) == "t", string(row[3]) == "t", string(row[4])))
	}
	return queues
}

// about is what a contender that queues now says of itself. The name of its session's application is "tierlock", its token, 1 if it was
// asked for the lock, and that. The server cuts it to 63 bytes, which leaves some 20 for host and label.
func (s *advisory) about(linger time.Duration) string { return s.self.Now(linger).Line(36) }

// placeOf is a place as the name of its application tells. One that waits has no token yet.
func placeOf(pid string, reads, granted bool, name string) place {
	p := place{second.Contender{ID: pid, Shared: reads}, granted, strings.HasPrefix(name, "tierlock ")}
	fields := strings.SplitN(name, " ", 4)
	if !p.ours || len(fields) < 4 {
		return p
	}
	if granted {
		p.Token, _ = strconv.ParseInt(fields[1], 10, 64)
		p.Asked = fields[2] == "1"
	}
	p.ReadLine(fields[3], 36)
	return p
}

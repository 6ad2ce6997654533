package zklock

import (
	"errors"
	"fmt"
	"strconv"
	"strings"

	"github.com/go-zookeeper/zk"

	"github.com/tierlock/tierlock/internal/second"
	"github.com/tierlock/tierlock/zklock/internal/link"
)

// The number of permits is the content of the path, so that two processes that were told different
// ones find out. It is written where nothing was said yet, by whoever has the turn to take permits.
// Other content is somebody's, and stays.
const permitsMark = "tierlock permits="

// A sight is what a look at a semaphore shows.
type sight struct {
	free    int
	missing bool  // there is nothing to put permits below
	blank   bool  // the path does not say how many there are, and may
	version int32 // of the content of the path
}

// look counts the permits that are taken, and compares the number of all. It sees to it that v hears
// of changes. A server that lags may show too many permits to whoever has the turn, never too few.
func (s *semaphore) look(v *vigil) (sight, error) {
	answers := s.link.WatchWith(s.leases.path, &v.leases, s.link.Reading(s.path, &v.path))
	leases, path := answers[0], answers[1]
	seen := sight{missing: classify(leases.Err) == missing}
	if leases.Err != nil && !seen.missing {
		return seen, fmt.Errorf("list %s: %w", s.leases.path, lacking("READ", s.leases.path, leases.Err))
	}
	seen.free = s.permits - len(leases.Children)
	switch {
	case path.Err == nil:
		seen.version = path.Stat.Version
		var err error
		seen.blank, err = s.compare(path)
		return seen, err
	case classify(path.Err) == missing, errors.Is(path.Err, zk.ErrNoAuth): // nothing can be compared
		return seen, nil
	}
	return seen, fmt.Errorf("read %s: %w", s.path, path.Err)
}

// compare reports whether the path has yet to say how many permits there are, or refuses one that
// says something else.
func (s *semaphore) compare(path link.Answer) (blank bool, err error) {
	text := string(path.Data)
	if path.Stat.DataLength == 0 || text == containerData {
		return true, nil
	}
	if number, ours := strings.CutPrefix(text, permitsMark); ours && number != strconv.Itoa(s.permits) {
		return false, fmt.Errorf("%w: %s says %s, this process %d; use one number everywhere; to change it, stop all processes and set the content of %s to %q",
			second.ErrPermits, s.path, number, s.permits, s.path, s.marking())
	}
	if _, err := strconv.Atoi(strings.TrimSpace(text)); err == nil {
		return false, fmt.Errorf("%w: the content of %s is %q, as of kazoo's Semaphore, which cannot share permits with this one; use another path",
			second.ErrPermits, s.path, text)
	}
	return false, nil
}

// errRewritten says that somebody else has just written to the path.
var errRewritten = errors.New("the number of permits was changed")

// mark writes the number of permits where it is not known, if that is permitted.
func (s *semaphore) mark(seen sight) error {
	if !seen.blank || s.unmarked.Load() {
		return nil
	}
	_, err := s.link.Conn.Set(s.path, []byte(s.marking()), seen.version)
	switch {
	case errors.Is(err, zk.ErrNoAuth):
		s.unmarked.Store(true)
		return nil
	case errors.Is(err, zk.ErrBadVersion):
		return errRewritten
	case err != nil:
		return fmt.Errorf("write the number of permits to %s: %w", s.path, err)
	}
	return nil
}

// marking is the content of the path that says how many permits there are.
func (s *semaphore) marking() string { return permitsMark + strconv.Itoa(s.permits) }

package mysqllock

import (
	"cmp"
	"context"
	"database/sql"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/tierlock/tierlock/internal/queue"
	"github.com/tierlock/tierlock/internal/second"
)

// The listener executes a statement that waits in the server for news, that is, notifications for its session. Each such wait lasts for
// longestWait at most. If no other process can end the wait, it lasts only for shortWait.
const (
	longestWait = 2 * time.Second
	shortWait   = 50 * time.Millisecond
)

// keeperSuffix ends the name of a MySQL lock (GET_LOCK) that the keeper holds, because the procedure tierlock_beat takes it. The listener
// waits by trying to take this lock. Its name is that of the listener's own lock, with this suffix.
const keeperSuffix = " bed"

// listen receives the news of a session until ctx ends. After a connection has broken, it opens another one.
func (s *store) listen(ctx context.Context, session string) {
	for failed := 0; ctx.Err() == nil; pause(ctx, s.tier.Patience()/4) {
		c, err := s.connect(ctx)
		if err != nil { // renewals report that the server cannot be reached
			continue
		}
		heard, err := s.hear(ctx, c, session)
		c.discard()
		if failed++; heard {
			failed = 0
		}
		if failed >= maxFailed && ctx.Err() == nil {
			s.tier.Deafen(fmt.Errorf("the connection that listens for events: %w", err))
		}
	}
}

// maxFailed limits how many connections in a row may break before a wait on them has succeeded. At that number, the tier reports that no
// news can arrive.
const maxFailed = 3

func pause(ctx context.Context, d time.Duration) {
	select {
	case <-ctx.Done():
	case <-time.After(d):
	}
}

// sleepSQL waits unless there is news. It is one statement, so that no wake is missed. A wake is a KILL QUERY, which another process sends
// after the commit of the news. A wake during the statement ends the statement. If the wake came before, the statement sees the news and
// does not wait.
//
// The statement waits for a MySQL lock (GET_LOCK) that the keeper holds. It does not use SLEEP, because all sleeps of a server share one
// mutex, and delayed one another by seconds.
const sleepSQL = `SELECT IS_USED_LOCK(?) = CONNECTION_ID(), IF(EXISTS (
	SELECT 1 FROM tierlock_contender WHERE session = ? AND told > ?), 0, GET_LOCK(?, ?))`

// hear waits for news and reads it, again and again, until the connection breaks. It takes a MySQL lock (GET_LOCK) with the name of the
// session, by which other processes find the connection. The first read includes all earlier news of the session. Some of it may have come
// while no connection listened. The first read has no lower bound, because a new server may have lower numbers. heard is true if at least
// one wait has succeeded.
func (s *store) hear(ctx context.Context, c *conn, session string) (heard bool, _ error) {
	name := "tierlock " + session
	var mine int
	if err := c.row(ctx, "SELECT COALESCE(GET_LOCK(?, 0), 0)", []any{name}, &mine); err != nil {
		return false, err
	}
	if mine != 1 {
		return false, errors.New("the server has not yet noticed that the previous connection that listened has ended")
	}
	var newest int64 // the number of the newest news that was read
	late := 0        // how many times in a row a wait ended by its time limit although there was news
	for {
		within := longestWait
		if late >= 3 {
			within = shortWait
		}
		begun := time.Now()
		var got sql.NullBool // the result of GET_LOCK; MySQL returns NULL after a wake
		err := s.within(ctx, within+s.tier.Patience(), func(ctx context.Context) error {
			var here bool
			err := c.row(ctx, sleepSQL, []any{name, session, newest, name + keeperSuffix, within.Seconds()}, &here, &got)
			switch {
			case err == nil && !here:
				err = errProxy
			case err == nil && got.Bool:
				err = errors.New("the connection that renews the session is lost")
			}
			return err
		})
		woken := refusal(err) == killed || err == nil && !got.Valid
		if woken {
			err = nil
		}
		if err != nil {
			return heard, err
		}
		heard = true
		s.tier.Deafen(nil)
		before, slept := newest, time.Since(begun) >= within
		if err := s.readNews(ctx, session, &newest); err != nil { // the next renewal reads all followed queues
			pause(ctx, s.tier.Patience()/4)
			continue
		}
		switch {
		case woken:
			late = 0
		case newest == before && late >= 3: // MySQL rounds the time to whole seconds, so the wait may have been too short
			pause(ctx, within-time.Since(begun))
		case newest == before: // if the wait ended at once, the contender with the news was deleted before the read
			pause(ctx, min(within-time.Since(begun), time.Millisecond))
		case slept:
			if late++; late == 3 {
				s.tier.Logger().Warn("mysqllock: other processes cannot wake this process, so it polls the server 20 times a second; "+
					"connect all programs as the same user", "session", session)
			}
		}
	}
}

func (s *store) within(ctx context.Context, limit time.Duration, do func(context.Context) error) error {
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	return do(ctx)
}

// Follow makes the keeper read the queue of a contender soon.
func (s *store) Follow(r queue.Ref) {
	r = at(r)
	s.mu.Lock()
	s.followers[r.ID] = follower{r.Path, queue.View{ID: r.ID, Known: true, Token: r.Token, Reads: r.Reads}}
	s.mu.Unlock()
	s.readSoon(r.Path)
}

func (s *store) Unfollow(r queue.Ref) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.followers, r.ID)
}

// readSoon makes the keeper read the queue at path soon. Followed contenders in that queue then get new views.
func (s *store) readSoon(path string) {
	s.mu.Lock()
	s.stale[path] = true
	s.mu.Unlock()
	s.wakeReader()
}

func (s *store) wakeReader() {
	select {
	case s.unread <- struct{}{}:
	default: // catchUp has not taken the last value yet, and is about to read
	}
}

// catchUp runs until the store is closed. It reads the queues that have to be read, over the keeper, and reports the new views.
func (s *store) catchUp() {
	for {
		select {
		case <-s.ctx.Done():
			return
		case <-s.unread:
		}
		refs := s.due()
		if len(refs) == 0 {
			continue
		}
		s.withKeeper(s.ctx, func(ctx context.Context) error {
			views, err := s.look(ctx, refs)
			for _, v := range views {
				s.tell(v)
			}
			return err
		})
	}
}

// withKeeper calls do, which may use the keeper for as long as a request may take. If the session was not renewed over the present keeper
// yet, withKeeper returns errNew. The next renewal then makes catchUp read all followed queues.
func (s *store) withKeeper(ctx context.Context, do func(context.Context) error) error {
	return s.within(ctx, s.tier.Patience(), func(ctx context.Context) error {
		return s.keep(ctx, func() error {
			if s.keeper == nil || !s.known {
				return errNew
			}
			return do(ctx)
		})
	})
}

// due returns the followed contenders whose queues have to be read, and clears the set of these queues.
func (s *store) due() []queue.Ref {
	s.mu.Lock()
	stale := s.stale
	s.stale = make(map[string]bool)
	s.mu.Unlock()
	return s.following(func(f follower) bool { return stale[f.path] })
}

// following returns the followed contenders for which the parameter wanted returns true.
func (s *store) following(wanted func(follower) bool) (refs []queue.Ref) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for id, f := range s.followers {
		if wanted(f) {
			refs = append(refs, queue.Ref{Path: f.path, ID: id, Token: f.told.Token, Reads: f.told.Reads})
		}
	}
	return refs
}

// tell reports a view to the tier, if its contender is followed.
func (s *store) tell(v queue.View) {
	s.mu.Lock()
	f, follows := s.followers[v.ID]
	if follows {
		s.followers[v.ID] = follower{f.path, v}
	}
	s.mu.Unlock()
	if follows {
		s.tier.Tell(v)
	}
}

// look reads the queues of contenders, and returns the contenders' views.
func (s *store) look(ctx context.Context, refs []queue.Ref) ([]queue.View, error) {
	asked := s.now()
	var paths []any
	seen := make(map[string]bool)
	for _, r := range refs {
		if !seen[r.Path] {
			seen[r.Path] = true
			paths = append(paths, r.Path)
		}
	}
	queues := make(map[string][]second.Contender)
	for len(paths) > 0 {
		n := min(len(paths), maxLooks)
		_, some, err := read(ctx, s.keeper, lookSQL(n), paths[:n]...)
		if err != nil {
			return nil, err
		}
		for path, q := range some {
			queues[path] = q
		}
		paths = paths[n:]
	}
	return s.stand(asked, refs, queues), nil
}

// stand returns the views of contenders in these queues. asked is the value of now from before the queues were read.
func (s *store) stand(asked int64, refs []queue.Ref, queues map[string][]second.Contender) (views []queue.View) {
	places := make(map[string]*queue.Places)
	for _, r := range refs {
		if places[r.Path] == nil {
			places[r.Path] = queue.NewPlaces(queues[r.Path])
		}
		v := queue.View{ID: r.ID, Token: r.Token, At: asked}
		if places[r.Path].Stand(&v); v.Known {
			v = s.grant(v, v.Has)
		}
		views = append(views, v)
	}
	return views
}

const columns = `, c.path, c.id, c.token, c.since, c.shared, c.asked, c.linger_ms, c.permits, c.weight, s.host, s.pid, s.label
	FROM tierlock_contender c JOIN tierlock_session s ON s.id = c.session`

// maxLooks is how many queues one statement reads at most.
const maxLooks = 64

// lookSQL returns the statement that reads the queues at n paths.
func lookSQL(n int) string {
	return "SELECT 0" + columns + " WHERE c.path IN (?" + strings.Repeat(", ?", n-1) + ")"
}

// newsSQL reads the queues about which there is news for a session, each as often as the session has contenders there with news. Its first
// column has the number of such news. A UNION or a subquery would make the server use a temporary table, which takes longer
// than the rest of a transfer.
const newsSQL = "SELECT m.told" + columns + " JOIN tierlock_contender m ON m.path = c.path WHERE m.session = ? AND m.told > ?"

// readNews reads the queues about which there is news with a number above heard, and reports the views of the followed contenders there.
// All reads of queues use the keeper, one after another. Therefore a later read never shows an older state.
func (s *store) readNews(ctx context.Context, session string, heard *int64) error {
	return s.withKeeper(ctx, func(ctx context.Context) error {
		refs, asked := s.following(func(follower) bool { return true }), s.now() // a contender that follows later gets a read of its own
		number, queues, err := read(ctx, s.keeper, newsSQL, session, *heard)
		if err != nil {
			return err
		}
		refs = slices.DeleteFunc(refs, func(r queue.Ref) bool { return queues[r.Path] == nil })
		for _, v := range s.stand(asked, refs, queues) {
			s.tell(v)
		}
		*heard = max(*heard, number)
		return nil
	})
}

// read executes a statement that reads queues, each in one snapshot. It returns the highest number in the first column. The contenders of a
// queue are ordered by token. Permits is the number that a contender wants or has.
func read(ctx context.Context, c *conn, sql string, args ...any) (number int64, queues map[string][]second.Contender, err error) {
	rows, err := c.query(ctx, sql, args...)
	if err != nil {
		return 0, nil, err
	}
	defer rows.Close()
	queues = make(map[string][]second.Contender)
	for rows.Next() {
		var path string
		var since int64
		var says second.Description
		var one second.Contender
		var news int64
		if err := rows.Scan(&news, &path, &one.ID, &one.Token, &since, &one.Shared, &one.Asked, &says.Linger, &one.Of, &one.Permits,
			&says.Host, &says.PID, &says.Label); err != nil {
			return 0, nil, fmt.Errorf("a contender: %w", err)
		}
		number = max(number, news)
		one.Since = time.UnixMicro(since).UTC()
		says.Tell(&one)
		queues[path] = append(queues[path], one)
	}
	for path, q := range queues {
		slices.SortFunc(q, func(a, b second.Contender) int { return cmp.Compare(a.Token, b.Token) })
		queues[path] = slices.CompactFunc(q, func(a, b second.Contender) bool { return a.ID == b.ID })
	}
	return number, queues, rows.Err()
}

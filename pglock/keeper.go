package pglock

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"maps"
	"os"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/tierlock/tierlock/internal/queue"
	"github.com/tierlock/tierlock/internal/second"
)

// A keeper has the connection over which the session is renewed. While no command is under way there, it reads queues that are
// followed, and hears what the server tells.
type keeper struct {
	store *store
	ear   ear

	mu        sync.Mutex          // guards the fields below
	followers map[string]follower // by ID
	unread    map[string]bool     // paths of queues that are to be read
}

type follower struct {
	path string
	told queue.View // the last
}

func newKeeper(s *store) *keeper {
	k := &keeper{store: s, followers: make(map[string]follower), unread: make(map[string]bool)}
	dial := func(ctx context.Context) (*line, error) {
		return dial(ctx, s.requests.Config(), s.tier.Patience(), k.pass)
	}
	k.ear = ear{dial: dial, due: k.read, Tasks: second.NewTasks(), lost: func() {
		s.requests.Reset() // they may be as dead
		s.tier.Renew()
	}}
	return k
}

// keep executes a command on the connection. On a new one that is to be a renewal that was asked for since, so that it names all who
// count on it.
func (k *keeper) keep(ctx context.Context, c queue.Command) (a queue.Answer, err error) {
	if c.Op == queue.Open || c.Op == queue.Beat {
		fresh, err := k.ear.open(ctx)
		switch {
		case err != nil:
			return a, err
		case fresh && c.Op == queue.Open: // which takes a while
			return queue.Answer{Outcome: queue.Failed}, nil
		case fresh:
			return a, errNew
		}
	}
	err = k.ear.talk(ctx, func(l *line) (err error) {
		a, err = k.say(ctx, l, c)
		return err
	})
	return a, err
}

// say executes a command on a connection.
func (k *keeper) say(ctx context.Context, l *line, c queue.Command) (a queue.Answer, err error) {
	a.Outcome = queue.Done
	switch {
	case c.Op == queue.Open:
		return k.open(ctx, l)
	case c.Op == queue.Beat:
		return k.beat(ctx, l, c)
	case !l.known:
		return a, errNew
	case c.Op == queue.Audit:
		a.Present, err = present(ctx, l, c.Session)
	case c.Op == queue.Drop:
		err = drop(ctx, l, c.Among)
	case c.Op == queue.Look:
		asked := k.store.now()
		var queues map[string][]second.Contender
		queues, err = look(ctx, l.conn, []string{c.Path})
		a.View = k.store.stands(c.ID, c.Token, queues[c.Path], asked)
	}
	return a, err
}

// open begins a session whose news the connection hears.
func (k *keeper) open(ctx context.Context, l *line) (a queue.Answer, err error) {
	s := k.store
	l.known = false
	if err := checkSchema(ctx, l.conn); err != nil {
		return a, err
	}
	if err := checkRights(ctx, l.conn); err != nil {
		return a, err
	}
	ttl := s.options.TTL.Milliseconds()
	if err := s.options.first.declare(ctx, l.conn, ttl); err != nil {
		return a, err
	}
	id, label := rand.Text(), s.options.Label
	_, err = l.conn.Exec(ctx, "SELECT tierlock.open($1, $2, $3, $4, $5)", id, ttl, s.host, os.Getpid(), label)
	var refusal *pgconn.PgError
	switch {
	case errors.As(err, &refusal) && refusal.Code == "22P05":
		return a, fmt.Errorf("label %q, host %q: %w: %w; set another label, or take a database in UTF8", label, s.host, errEncoding, err)
	case err != nil:
		return a, err
	}
	a, err = k.beat(ctx, l, queue.Command{Session: id}) // tells of a quarantine
	a.Name, a.TTL = id, s.options.TTL
	return a, err
}

// beat renews a session. Before the first renewal on a connection the server says who queues: it may not be the server of before.
// Then it may not know all contenders, and what it renews is not their lease; and it may know some that were deleted.
func (k *keeper) beat(ctx context.Context, l *line, c queue.Command) (a queue.Answer, err error) {
	if a.Doubt = !l.known; a.Doubt {
		if a.Views, err = k.absent(ctx, l, c); err != nil {
			return a, err
		}
	}
	var alive bool
	var stale []string
	var quiet int64
	sent := time.Now()
	if err := l.conn.QueryRow(ctx, "SELECT alive, stale, quiet FROM tierlock.beat($1, $2)", c.Session, k.store.options.TTL.Milliseconds()).
		Scan(&alive, &stale, &quiet); err != nil {
		return a, err
	}
	k.store.hush(quiet, sent)
	if !alive {
		return a, errOver
	}
	a.Outcome, l.known = queue.Done, true
	k.mu.Lock()
	for _, f := range k.followers { // a notification may be lost, be it with the connection before this one
		k.unread[f.path] = true
	}
	k.mu.Unlock()
	l.schedule(time.Now())
	if len(stale) > 0 {
		k.store.tier.Spawn(func() { k.store.settle(stale) })
	}
	return a, nil
}

// absent hears the news of the session from now on, and returns who is not in a queue.
func (k *keeper) absent(ctx context.Context, l *line, c queue.Command) (views []queue.View, err error) {
	if _, err := l.conn.Exec(ctx, "LISTEN "+pgx.Identifier{"tierlock " + c.Session}.Sanitize()); err != nil {
		return nil, err
	}
	if err := prepare(ctx, l.conn, lookSQL); err != nil {
		return nil, err
	}
	asked := k.store.now()
	present, err := present(ctx, l, c.Session)
	if err != nil {
		return nil, err
	}
	queues := make(map[string]bool)
	for _, r := range present {
		queues[r.ID] = true
	}
	for _, r := range c.Among {
		if !queues[r.ID] {
			views = append(views, queue.View{ID: r.ID, Token: r.Token, At: asked})
		}
	}
	return views, nil
}

// present returns those that the server has under a session.
func present(ctx context.Context, l *line, session string) ([]queue.Ref, error) {
	rows, err := l.conn.Query(ctx, "SELECT path, id FROM tierlock.contender WHERE session = $1", session)
	if err != nil {
		return nil, err
	}
	return pgx.CollectRows(rows, func(row pgx.CollectableRow) (r queue.Ref, err error) { return r, row.Scan(&r.Path, &r.ID) })
}

// maxDrops is how many contenders are deleted at a time: the server has room for some thousand locks only.
const maxDrops = 100

func drop(ctx context.Context, l *line, refs []queue.Ref) error {
	var ids []string
	for _, r := range refs[:min(len(refs), maxDrops)] {
		ids = append(ids, r.ID)
	}
	_, err := l.conn.Exec(ctx, "SELECT tierlock.drop($1)", ids)
	return err
}

// settle removes contenders that have no session any more from queues. Whoever comes first does.
func (s *store) settle(paths []string) {
	for _, path := range paths {
		ctx, cancel := context.WithTimeout(s.tier.Context(), s.tier.Patience())
		_, err := s.requests.Exec(ctx, "SELECT tierlock.settle($1)", path)
		cancel()
		if err != nil {
			return // next time
		}
	}
}

// Follow has the queue of a contender read soon.
func (k *keeper) Follow(r queue.Ref) {
	r = at(r)
	k.mu.Lock()
	k.followers[r.ID] = follower{r.Path, queue.View{ID: r.ID, Known: true, Token: r.Token, Reads: r.Reads}}
	k.mu.Unlock()
	k.stir(r.Path)
}

func (k *keeper) Unfollow(r queue.Ref) {
	k.mu.Lock()
	defer k.mu.Unlock()
	delete(k.followers, r.ID)
}

// stir has those who follow at path read its queue soon.
func (k *keeper) stir(path string) {
	k.mu.Lock()
	k.unread[path] = true
	k.mu.Unlock()
	k.ear.hurry(time.Now())
}

// due returns who follows the queues that are to be read, by path, and forgets it.
func (k *keeper) due() map[string][]queue.View {
	k.mu.Lock()
	defer k.mu.Unlock()
	due := make(map[string][]queue.View)
	for _, f := range k.followers {
		if k.unread[f.path] {
			due[f.path] = append(due[f.path], f.told)
		}
	}
	clear(k.unread)
	return due
}

// read reads the queues that are to be read. Before the session is renewed over a connection the next renewal sees to it.
func (k *keeper) read(l *line) error {
	l.schedule(time.Now().Add(k.store.options.TTL)) // a renewal comes before
	due := k.due()
	if len(due) == 0 {
		return nil
	}
	ctx, cancel := context.WithTimeout(k.store.tier.Context(), k.store.tier.Patience())
	defer cancel()
	return l.talk(context.Background(), func() error {
		if !l.known {
			return nil
		}
		asked := k.store.now()
		queues, err := look(ctx, l.conn, slices.Collect(maps.Keys(due)))
		if err != nil && classify(err) != queue.Denied {
			k.ear.lose(l, err)
			return err
		}
		for path, views := range due {
			for _, v := range views {
				if err != nil {
					k.tell(queue.View{ID: v.ID, Known: true, Token: v.Token, At: asked, Err: err})
				} else {
					k.tell(k.store.stands(v.ID, v.Token, queues[path], asked))
				}
			}
		}
		return nil
	})
}

// pass passes a notification on.
func (k *keeper) pass(n *pgconn.Notification) {
	switch kind, what, _ := strings.Cut(n.Payload, " "); kind {
	case "turn":
		id, behind, _ := strings.Cut(what, " ")
		k.mu.Lock()
		v := k.followers[id].told // of none: it is about to follow, and then its queue is read
		k.mu.Unlock()
		v.At, v.Ahead, v.Nearest, v.Behind, v.Err = k.store.now(), 0, second.Contender{}, behind == "true", nil
		k.tell(k.store.grant(v, true))
	case "look":
		k.stir(what)
	}
}

// tell tells a contender how it stands if it follows.
func (k *keeper) tell(v queue.View) {
	k.mu.Lock()
	f, follows := k.followers[v.ID]
	if follows {
		k.followers[v.ID] = follower{f.path, v}
	}
	k.mu.Unlock()
	if follows {
		k.store.tier.Tell(v)
	}
}

const lookSQL = `SELECT c.* FROM unnest($1::text[]) q LEFT JOIN tierlock.floor f ON f.slot = tierlock.slot(q) AND f.path = q,
	LATERAL (SELECT c.path, c.id, c.token, c.since, c.reads, c.asked, c.linger_ms, c.budget, c.permits, c.weight, s.host, s.pid, s.label
		FROM tierlock.contender c JOIN tierlock.session s ON s.id = c.session
		WHERE c.path = q AND c.token >= coalesce(f.token, 0) OFFSET 0) c ORDER BY path, token`

// look reads queues, each as it was at one moment. Lower tokens go first. Who waits for permits is there with those that it wants.
func look(ctx context.Context, q querier, paths []string) (queues map[string][]second.Contender, err error) {
	rows, err := q.Query(ctx, lookSQL, paths)
	if err != nil {
		return nil, err
	}
	queues = make(map[string][]second.Contender)
	var path string
	var linger int64
	var c second.Contender
	row := []any{&path, &c.ID, &c.Token, &c.Since, &c.Shared, &c.Asked, &linger, &c.Budget, &c.Of, &c.Permits, &c.Host, &c.PID, &c.Label}
	_, err = pgx.ForEachRow(rows, row, func() error {
		c.Linger = time.Duration(linger) * time.Millisecond
		c.Host, c.Label = second.Text(c.Host), second.Text(c.Label)
		queues[path] = append(queues[path], c)
		return nil
	})
	return queues, err
}

// stands is how a contender stands in a queue that was read.
func (s *store) stands(id string, token int64, places []second.Contender, asked int64) queue.View {
	v := queue.View{ID: id, Token: token, At: asked}
	own := slices.IndexFunc(places, func(p second.Contender) bool { return p.ID == id })
	if own < 0 {
		return v
	}
	v.Stand(own, len(places), func(i int) *second.Contender { return &places[i] })
	return s.grant(v, v.Has)
}

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
	"github.com/tierlock/tierlock/pglock/internal/advisory"
)

// A keeper has the connection over which the session is renewed. While no command is under way there, it reads queues that are
// followed, and hears what the server tells.
type keeper struct {
	store *store

	next  sync.Mutex // is for whoever has the connection next
	conn  sync.Mutex // guards the fields below, for as long as a request takes
	wire  *pgx.Conn  // nil before the first
	known bool       // the session was renewed over it

	mu        sync.Mutex             // guards the fields below
	told      map[string]queue.View  // by ID: of who follows, the last
	followers map[string][]queue.Ref // by path
	unread    map[string]bool        // paths of queues that are to be read
	wake      context.CancelFunc     // ends the rest under way
}

func newKeeper(s *store) *keeper {
	return &keeper{store: s, told: make(map[string]queue.View), followers: make(map[string][]queue.Ref), unread: make(map[string]bool),
		wake: func() {}}
}

// keep executes a command on the connection. On a new one that is to be a renewal that was asked for since, so that it names all who
// count on it.
func (k *keeper) keep(ctx context.Context, c queue.Command) (a queue.Answer, err error) {
	k.next.Lock()
	k.stir("") // who listens gives way
	k.conn.Lock()
	k.next.Unlock()
	defer k.conn.Unlock()
	if k.wire == nil || k.wire.IsClosed() {
		k.known = false
		if k.wire, err = advisory.Connect(ctx, k.store.requests.Config()); err != nil {
			return a, err
		}
		if c.Op == queue.Open { // which takes a while
			return queue.Answer{Outcome: queue.Failed}, nil
		}
		return a, errNew
	}
	a.Outcome = queue.Done
	switch {
	case c.Op == queue.Open:
		return k.open(ctx)
	case c.Op == queue.Beat:
		return k.beat(ctx, c)
	case !k.known:
		return a, errNew
	case c.Op == queue.Audit:
		a.Present, err = k.present(ctx, c.Session)
	case c.Op == queue.Drop:
		err = k.drop(ctx, c.Among)
	case c.Op == queue.Look:
		asked := k.store.now()
		var queues map[string][]second.Contender
		queues, err = look(ctx, k.wire, []string{c.Path})
		a.View = k.store.stands(c.Ref, queues[c.Path], asked)
	}
	return a, err
}

// open begins a session whose news the connection hears.
func (k *keeper) open(ctx context.Context) (a queue.Answer, err error) {
	s := k.store
	k.known = false
	if err := checkSchema(ctx, k.wire); err != nil {
		return a, err
	}
	if err := checkRights(ctx, k.wire); err != nil {
		return a, err
	}
	ttl := s.options.TTL.Milliseconds()
	if err := s.options.first.declare(ctx, k.wire, ttl); err != nil {
		return a, err
	}
	id, label := rand.Text(), s.options.Label
	_, err = k.wire.Exec(ctx, "SELECT tierlock.open($1, $2, $3, $4, $5)", id, ttl, s.host, os.Getpid(), label)
	var refusal *pgconn.PgError
	switch {
	case errors.As(err, &refusal) && refusal.Code == "22P05":
		return a, fmt.Errorf("label %q, host %q: %w: %w; set another label, or take a database in UTF8", label, s.host, errEncoding, err)
	case err != nil:
		return a, err
	}
	a, err = k.beat(ctx, queue.Command{Session: id}) // tells of a quarantine
	a.Name, a.TTL = id, s.options.TTL
	return a, err
}

// beat renews a session. Before the first renewal on a connection the server says who queues: it may not be the server of before.
// Then it may not know all contenders, and what it renews is not their lease; and it may know some that were deleted.
func (k *keeper) beat(ctx context.Context, c queue.Command) (a queue.Answer, err error) {
	if a.Doubt = !k.known; a.Doubt {
		if a.Views, err = k.absent(ctx, c); err != nil {
			return a, err
		}
	}
	var alive bool
	var stale []string
	var quiet int64
	sent := time.Now()
	if err := k.wire.QueryRow(ctx, "SELECT alive, stale, quiet FROM tierlock.beat($1, $2)", c.Session, k.store.options.TTL.Milliseconds()).
		Scan(&alive, &stale, &quiet); err != nil {
		return a, err
	}
	k.store.hush(quiet, sent)
	if !alive {
		return a, errOver
	}
	a.Outcome, k.known = queue.Done, true
	k.mu.Lock()
	for path := range k.followers { // a notification may be lost, be it with the connection before this one
		k.unread[path] = true
	}
	k.mu.Unlock()
	if len(stale) > 0 {
		k.store.tier.Spawn(func() { k.store.settle(stale) })
	}
	return a, nil
}

// absent hears the news of the session from now on, and returns who is not in a queue.
func (k *keeper) absent(ctx context.Context, c queue.Command) (views []queue.View, err error) {
	if _, err := k.wire.Exec(ctx, "LISTEN "+pgx.Identifier{"tierlock " + c.Session}.Sanitize()); err != nil {
		return nil, err
	}
	if err := prepare(ctx, k.wire, lookSQL); err != nil {
		return nil, err
	}
	asked := k.store.now()
	present, err := k.present(ctx, c.Session)
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
func (k *keeper) present(ctx context.Context, session string) ([]queue.Ref, error) {
	rows, err := k.wire.Query(ctx, "SELECT path, id FROM tierlock.contender WHERE session = $1", session)
	if err != nil {
		return nil, err
	}
	return pgx.CollectRows(rows, func(row pgx.CollectableRow) (r queue.Ref, err error) { return r, row.Scan(&r.Path, &r.ID) })
}

// maxDrops is how many contenders are deleted at a time: the server has room for some thousand locks only.
const maxDrops = 100

func (k *keeper) drop(ctx context.Context, refs []queue.Ref) error {
	var ids []string
	for _, r := range refs[:min(len(refs), maxDrops)] {
		ids = append(ids, r.ID)
	}
	_, err := k.wire.Exec(ctx, "SELECT tierlock.drop($1)", ids)
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
	k.told[r.ID] = queue.View{ID: r.ID, Known: true, Token: r.Token, Reads: r.Reads}
	k.followers[r.Path] = append(k.followers[r.Path], r)
	k.mu.Unlock()
	k.stir(r.Path)
}

func (k *keeper) Unfollow(r queue.Ref) {
	r = at(r)
	k.mu.Lock()
	defer k.mu.Unlock()
	delete(k.told, r.ID)
	k.followers[r.Path] = slices.DeleteFunc(k.followers[r.Path], func(f queue.Ref) bool { return f.ID == r.ID })
	if len(k.followers[r.Path]) == 0 {
		delete(k.followers, r.Path)
	}
}

// stir ends the rest under way. The queue at path is read, if anybody follows it.
func (k *keeper) stir(path string) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.followers[path] != nil {
		k.unread[path] = true
	}
	k.wake()
}

// rest returns a context that ends when there is something to do. It begins before the look whether there is.
func (k *keeper) rest() (context.Context, context.CancelFunc) {
	ctx, cancel := context.WithCancel(k.store.tier.Context())
	k.mu.Lock()
	defer k.mu.Unlock()
	k.wake = cancel
	return ctx, cancel
}

// listen reads queues, and hears what the server tells, until the tier is closed.
func (k *keeper) listen() {
	for k.store.tier.Context().Err() == nil {
		k.next.Lock()
		k.conn.Lock()
		rest, wake := k.rest()
		k.next.Unlock() // who has the connection next wakes it
		k.read()
		k.hear(rest)
		wake()
		k.conn.Unlock()
	}
}

// due returns who follows the queues that are to be read, by path, and forgets it.
func (k *keeper) due() map[string][]queue.Ref {
	k.mu.Lock()
	defer k.mu.Unlock()
	due := make(map[string][]queue.Ref)
	for path := range k.unread {
		if refs := k.followers[path]; refs != nil {
			due[path] = slices.Clone(refs)
		}
	}
	clear(k.unread)
	return due
}

// read reads the queues that are to be read. Without a connection the next renewal sees to it.
func (k *keeper) read() {
	due := k.due()
	if !k.known || len(due) == 0 {
		return
	}
	ctx, cancel := context.WithTimeout(k.store.tier.Context(), k.store.tier.Patience())
	defer cancel()
	asked := k.store.now()
	queues, err := look(ctx, k.wire, slices.Collect(maps.Keys(due)))
	if err != nil && classify(err) != queue.Denied {
		k.lose()
		return
	}
	for path, refs := range due {
		for _, r := range refs {
			if err != nil {
				k.tell(queue.View{ID: r.ID, Known: true, Token: r.Token, At: asked, Err: err})
			} else {
				k.tell(k.store.stands(r, queues[path], asked))
			}
		}
	}
}

// hear waits for news until the rest ends.
func (k *keeper) hear(rest context.Context) {
	if !k.known {
		<-rest.Done()
		return
	}
	n, err := k.wire.WaitForNotification(rest)
	switch {
	case n != nil:
		k.pass(n.Payload)
	case err != nil && k.wire.IsClosed():
		k.lose()
	}
}

// lose ends the connection, and has the session renewed over another one.
func (k *keeper) lose() {
	ctx, cancel := context.WithTimeout(k.store.wires, time.Second)
	defer cancel()
	k.known = false
	k.wire.Close(ctx)
	k.store.requests.Reset() // they may be as dead
	k.store.tier.Renew()
}

// pass passes a notification on.
func (k *keeper) pass(message string) {
	switch kind, what, _ := strings.Cut(message, " "); kind {
	case "turn":
		id, behind, _ := strings.Cut(what, " ")
		k.mu.Lock()
		v := k.told[id] // of none: it is about to follow, and then its queue is read
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
	_, follows := k.told[v.ID]
	if follows {
		k.told[v.ID] = v
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
func (s *store) stands(r queue.Ref, places []second.Contender, asked int64) queue.View {
	v := queue.View{ID: r.ID, Token: r.Token, At: asked}
	own := slices.IndexFunc(places, func(p second.Contender) bool { return p.ID == r.ID })
	if own < 0 {
		return v
	}
	v.Stand(own, len(places), func(i int) *second.Contender { return &places[i] })
	return s.grant(v, v.Has)
}

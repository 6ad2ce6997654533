package redislock

import (
	"cmp"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/tierlock/tierlock/internal/queue"
	"github.com/tierlock/tierlock/internal/second"
)

// A store is the connection of this process to Redis. It uses a client that belongs to the program.
//
// Redis has no sessions. It stores a lease for each contender. The lease ends one TTL after Redis has last received a request about the
// contender. A session exists only in this process. It is a period in which Redis has always answered within a TTL.
type store struct {
	tier    *queue.Tier
	client  redis.UniversalClient
	options options
	where   string // describes the servers in errors
	name    string // the name of this process in Redis
	self    second.Description

	sessions, contenders atomic.Int64 // how many of each this process has created
	heard                atomic.Int64 // when the newest renewal that was answered was sent, on the clock of the tier

	lag       atomic.Int64 // a time.Duration that [store.gracePeriod] adds to the TTL
	primaries sync.Map     // by replication ID: when the grace period of a known primary ends, on the clock of the tier; 0 for none
	declared  atomic.Bool  // the declaration of WithNewServer has been recorded
	writes    atomic.Int64 // how many guarded writes there were
	evicting  atomic.Value // a string: the maxmemory-policy of a server that may evict values, or unread; "" if no server may
	warned    sync.Once    // logs the warning about that policy
}

// open returns a store that uses client, and starts its tier, which begins a session.
func open(client redis.UniversalClient, o options) *store {
	s := &store{client: client, options: o, where: endpoint(client), name: rand.Text(), self: second.Describe(o.Label)}
	s.tier = queue.New(queue.Config{
		Package: "redislock", Store: "Redis", Settings: o.Settings, OwnTTL: true, Paths: checkKey, Evicts: s.mayEvict,
		Lost: func(r queue.Ref) string {
			return "the key " + at(r) + " was deleted or overwritten, or the queue of this key was"
		},
	}, s)
	if single, ok := client.(*redis.Client); ok {
		s.client = single.WithTimeout(s.tier.Patience()) // otherwise a request could continue long after its context has ended
	}
	s.tier.Spawn(s.listen)
	s.tier.Start()
	return s
}

// endpoint returns the addresses of the servers, for error texts. For a cluster, these are the addresses in the client's configuration.
func endpoint(client redis.UniversalClient) string {
	switch client := client.(type) {
	case *redis.ClusterClient:
		return "the Redis cluster at " + strings.Join(client.Options().Addrs, ", ")
	case *redis.Client:
		if addr := client.Options().Addr; addr != "FailoverClient" {
			return "Redis at " + addr
		}
	}
	return "the Redis primary that Sentinels name"
}

func (s *store) clustered() bool {
	_, cluster := s.client.(*redis.ClusterClient)
	return cluster
}

// Name returns a new name for a contender. It begins with the name of the process, because the script needs that name for messages.
func (s *store) Name(string) string { return s.name + "." + strconv.FormatInt(s.contenders.Add(1), 36) }

// Close does not close the client, because that belongs to the program.
func (s *store) Close() {}

// Do executes a command in Redis. Most commands are one call of the script.
func (s *store) Do(ctx context.Context, c queue.Command) queue.Answer {
	switch c.Op {
	case queue.Open:
		return s.begin(ctx)
	case queue.Beat:
		return s.beat(c.Among)
	case queue.Goodbye:
		return s.goodbye(ctx, c.Among)
	}
	more := []any{c.Weight, s.describe(c), c.Old.ID}
	if c.Op == queue.Save {
		more = s.valued(c)
	}
	words, err := call(ctx, s, func(ctx context.Context) ([]string, error) { return s.run(ctx, string(c.Op), c.Ref, more...) })
	if err != nil {
		return s.failed(err)
	}
	return s.answered(c, words)
}

// answered translates an answer of the script into the answer to the command.
func (s *store) answered(c queue.Command, words []string) (a queue.Answer) {
	var err error
	switch {
	case c.Op == queue.List:
		a.Queue, err = s.list(words)
	case c.Op == queue.Ask && len(words) == 1:
		err = fmt.Errorf("the key belongs to another library, which ignores requests to release the lock: %w", errors.ErrUnsupported)
		return queue.Answer{Outcome: queue.Denied, Err: err}
	case slices.Equal(words, []string{"gone"}):
		return queue.Answer{Outcome: queue.Gone}
	case c.Op == queue.Load && len(words) > 0:
		a.Value, err = valueIn(words)
	case c.Op == queue.Ask, c.Op == queue.Resize, c.Op == queue.Save, c.Op == queue.Load:
	case c.Op == queue.Leave:
		if !s.clustered() && slices.Equal(words, []string{"0"}) { // a cluster client may have repeated the request, so there "0" proves nothing
			a.Removed = queue.Missing
		}
	case c.Op == queue.Try && len(words) == 2 && words[0] == "busy":
		return queue.Answer{Outcome: queue.Locked, InGracePeriod: words[1] != "0"}
	case slices.Equal(words, []string{"unsupported"}):
		return queue.Answer{Outcome: queue.Denied, Err: errors.ErrUnsupported}
	case len(words) == 2 && words[0] == "permits":
		permits, _ := strconv.Atoi(words[1])
		err = fmt.Errorf("%w: the number in the store is %d, not %d", second.ErrTooManyPermits, permits, c.Permits)
		return queue.Answer{Outcome: queue.Denied, Permits: permits, Err: err}
	default:
		a.View, err = view(c.ID, words)
	}
	if err != nil {
		return queue.Answer{Err: err} // the Outcome is Unknown
	}
	a.Outcome = queue.Done
	return a
}

// begin starts a session. It checks the servers, and reads what this process has to know about them.
func (s *store) begin(ctx context.Context) queue.Answer {
	sent := s.tier.Now()
	if _, err := call(ctx, s, func(ctx context.Context) (struct{}, error) { return struct{}{}, s.examine(ctx) }); err != nil {
		a := s.failed(advise(err, records+"*"))
		if a.Outcome == queue.Denied {
			a.Err = fmt.Errorf("%s: %w", s.where, a.Err)
		}
		return a
	}
	s.heard.Store(int64(sent))
	return queue.Answer{Outcome: queue.Done, Name: fmt.Sprint(s.sessions.Add(1)), TTL: s.options.TTL}
}

// A pipeline has at most this many requests.
const most = 256

// beat sends a heartbeat for each contender, in one or more pipelines. It waits for each pipeline as long as for any other request. If
// Redis has not answered for a TTL, the session has ended, and beat sends no heartbeats.
func (s *store) beat(all []queue.Ref) (a queue.Answer) {
	sent := s.tier.Now()
	silent := sent-time.Duration(s.heard.Load()) > s.options.TTL
	if silent || len(all) == 0 {
		a = s.Do(s.tier.Context(), queue.Command{Op: queue.Look, Ref: queue.Ref{Path: records}}) // a path at which no contender can queue
		switch {
		case a.Outcome != queue.Done:
			return a
		case silent:
			return queue.Answer{Outcome: queue.Expired, Err: errors.New("the session was not renewed for a whole lease TTL")}
		}
	}
	for some := range slices.Chunk(all, most) {
		cmds, err := call(s.tier.Context(), s, func(ctx context.Context) ([]*redis.Cmd, error) { return s.send(ctx, "beat", some) })
		if err != nil {
			return s.failed(err)
		}
		for i, cmd := range cmds {
			a.Views = append(a.Views, renewed(some[i].ID, cmd))
		}
	}
	s.heard.Store(int64(sent))
	a.Outcome = queue.Done
	return a
}

// renewed returns the view in the answer to a heartbeat. If Redis has refused the heartbeat, this contender is lost, but not the other
// contenders of the process.
func renewed(id string, cmd *redis.Cmd) queue.View {
	words, err := cmd.StringSlice()
	v, unread := view(id, words)
	if err := cmp.Or(err, unread); err != nil {
		return queue.View{ID: id, Err: fmt.Errorf("cannot be renewed: %w", err)}
	}
	return v
}

// goodbye removes all contenders of the process from their queues. If that fails, the contenders end with their leases. goodbye does not
// use call, which refuses requests once the tier is closed.
func (s *store) goodbye(ctx context.Context, all []queue.Ref) queue.Answer {
	for some := range slices.Chunk(all, most) {
		if _, err := s.send(ctx, string(queue.Leave), some); err != nil {
			return s.failed(err)
		}
	}
	return queue.Answer{Outcome: queue.Done}
}

// call makes one request, and waits for the answer no longer than [queue.Tier.Patience]. It runs the request in a separate goroutine,
// because by default a client continues to wait after the context of a request has ended.
func call[T any](ctx context.Context, s *store, request func(context.Context) (T, error)) (answer T, err error) {
	ctx, cancel := context.WithTimeout(ctx, s.tier.Patience())
	defer cancel()
	return second.Do(ctx, s.tier.Spawn, func() (T, error) { return request(ctx) }, func(cause error) error { return cause })
}

// failed returns the answer to a command that has ended with an error.
func (s *store) failed(err error) queue.Answer {
	if errors.Is(err, redis.ErrClosed) { // the program has closed its client
		s.tier.End()
		return queue.Answer{Err: second.ErrClosed}
	}
	// If the error comes from a command inside the script, the script may have written something before.
	a := queue.Answer{Outcome: outcomeOf(err), Err: err, Begun: strings.Contains(err.Error(), "@user_script")}
	switch a.Outcome {
	case queue.Unknown:
		a.Away = fmt.Errorf("%s cannot be reached: %w", s.where, err)
	case queue.Failed:
		a.Away = fmt.Errorf("%s does not serve: %w", s.where, err)
	}
	a.Err = cmp.Or(a.Away, err)
	return a
}

// passing has the prefixes of errors that pass: for a while, the server serves no requests, or none about these keys. A server returns
// these errors only before a script has written anything.
var passing = []string{
	"BUSY", "CLUSTERDOWN", "LOADING", "MASTERDOWN", "MISCONF", "NOREPLICAS", "OOM", "READONLY", "TRYAGAIN",
	"ERR max number of clients reached",
}

// outcomeOf returns the outcome of a request that ended with err. If the server has not answered, the outcome is Unknown.
func outcomeOf(err error) queue.Outcome {
	var answer redis.Error
	switch {
	case err == nil:
		return queue.Done
	case errors.Is(err, errUsed), errors.Is(err, errDenied), errors.Is(err, errNoIdentity):
		return queue.Denied
	case !errors.As(err, &answer):
		return queue.Unknown
	}
	for _, prefix := range passing {
		// Before Redis 7, the error of a command inside a script is at the end of the text.
		if redis.HasErrorPrefix(err, prefix) || strings.Contains(err.Error(), "-"+prefix+" ") {
			return queue.Failed
		}
	}
	return queue.Denied
}

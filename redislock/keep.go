package redislock

import (
	"context"
	"slices"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/tierlock/tierlock/internal/retry"
	"github.com/tierlock/tierlock/internal/second"
)

// keep sends a round of heartbeats each quarter of the TTL, and more often while Redis does not
// answer.
func (s *store) keep() {
	timer := time.NewTimer(0)
	defer timer.Stop()
	for pace := retry.New(); ; {
		select {
		case <-timer.C:
		case <-s.renew.C():
		case <-s.ctx.Done():
			return
		}
		answered := s.round()
		s.renew.Clear() // before the look at problem: who has one later asks again
		if answered && s.problem.Load() == nil {
			pace.Reset()
			timer.Reset(s.options.ttl / 4)
			continue
		}
		if retry.Pause(s.ctx, pace.NextBackOff()) != nil {
			return
		}
		timer.Reset(0)
	}
}

// round renews the leases of all contenders, or begins a session if there is none.
func (s *store) round() (answered bool) {
	sent := s.now()
	x, _, _ := s.sessions.now()
	if x == nil || x.silence(sent) > s.options.ttl {
		return s.introduce(sent)
	}
	var alive []*contender
	for _, c := range x.Contenders() {
		if !c.lost() {
			alive = append(alive, c)
		}
	}
	cmds, err := s.beat(alive)
	if err != nil {
		return false
	}
	for i, c := range alive { // before the lease is renewed, or one that was lost could become a holder
		c.beaten(cmds[i], sent)
	}
	x.heard(sent)
	return true
}

// introduce asks the server what a process has to know of it, with which a session begins.
func (s *store) introduce(sent time.Duration) bool {
	_, err := call(s, s.ctx, func(ctx context.Context) (struct{}, error) { return struct{}{}, s.examine(ctx) })
	switch classify(err) {
	case done:
		s.begin(sent)
		return true
	case permanent:
		if err = advise(err, records+"*"); s.sessions.report(nil, err) {
			s.options.logger.Warn("redislock: no lock can be acquired", "err", err)
		}
	}
	return false
}

// most is how many heartbeats are sent together.
const most = 256

// beat sends one heartbeat for each contender, and is as patient with each so many of them as with any
// request. The error says that not all were answered.
func (s *store) beat(all []*contender) (cmds []*redis.Cmd, err error) {
	if len(all) == 0 {
		_, err := call(s, s.ctx, func(ctx context.Context) (struct{}, error) { return struct{}{}, s.greet(ctx) })
		return nil, err
	}
	for some := range slices.Chunk(all, most) {
		answered, err := call(s, s.ctx, func(ctx context.Context) ([]*redis.Cmd, error) { return s.send(ctx, "beat", some) })
		if err != nil {
			return nil, err
		}
		cmds = append(cmds, answered...)
	}
	return cmds, nil
}

// greet has Redis answer. It meets a primary that took over; in a cluster, the first request to each does.
func (s *store) greet(ctx context.Context) error {
	if one, ok := s.client.(*redis.Client); ok {
		return s.meetAt(ctx, one)
	}
	return s.client.Ping(ctx).Err()
}

// send runs an operation for some contenders at once. What cannot be done for one of them is in its
// command.
func (s *store) send(ctx context.Context, op string, some []*contender) (cmds []*redis.Cmd, err error) {
	addrs, primaries := make([]string, len(some)), make([]primary, len(some))
	for i, c := range some {
		addrs[i], primaries[i] = s.primaryOf(ctx, c.claim.path)
	}
	for again := true; again; {
		if ctx.Err() != nil {
			return nil, context.Cause(ctx)
		}
		cmds = nil
		s.client.Pipelined(ctx, func(p redis.Pipeliner) error { // whose error is one of the commands'
			for i, c := range some {
				cmds = append(cmds, p.EvalSha(ctx, script.Hash(), c.claim.keys, s.args(primaries[i], op, c.id)...))
			}
			return nil
		})
		if again, err = s.prepare(ctx, cmds, addrs, primaries); err != nil {
			return nil, err
		}
	}
	return cmds, nil
}

// prepare tells servers the script if one of them did not have it, and meets primaries that were not
// known. It reports whether there were such.
func (s *store) prepare(ctx context.Context, cmds []*redis.Cmd, addrs []string, primaries []primary) (again bool, err error) {
	untold := false
	for i, cmd := range cmds {
		words, err := cmd.StringSlice()
		if redis.HasErrorPrefix(err, "NOSCRIPT") {
			untold = true
		} else if o := classify(cmd.Err()); o == refused || o == uncertain {
			return false, cmd.Err()
		} else if introduced(words) {
			again = true
			if primaries[i], err = s.meet(ctx, addrs[i], words); err != nil {
				return false, err
			}
		}
	}
	if untold {
		return true, script.Load(ctx, s.client).Err()
	}
	return again, nil
}

// beaten takes the answer to a heartbeat.
func (c *contender) beaten(cmd *redis.Cmd, sent time.Duration) {
	words, err := cmd.StringSlice()
	var a answer
	if err == nil {
		a, err = parse(words)
	}
	if err != nil {
		c.session.Lose(c, second.Lost(second.ByOther, "%s cannot be renewed: %w", c.claim.path, err))
		return
	}
	c.apply(a, sent)
}

// goodbye bounds the last request of a process.
const goodbye = time.Second

// sayGoodbye removes what the process has in queues. What is left ends with its lease.
func (s *store) sayGoodbye() {
	var all []*contender
	s.byID.Range(func(_, c any) bool {
		all = append(all, c.(*contender))
		return true
	})
	if len(all) == 0 || s.problem.Load() != nil {
		return
	}
	ctx, cancel := context.WithTimeout(context.Background(), goodbye)
	defer cancel()
	for ; len(all) > 0 && ctx.Err() == nil; all = all[min(most, len(all)):] {
		s.send(ctx, "release", all[:min(most, len(all))])
	}
}

package redislock

import (
	"context"
	"encoding/json"
	"errors"
	"net"

	"github.com/redis/go-redis/v9"

	"github.com/tierlock/tierlock/internal/queue"
	"github.com/tierlock/tierlock/internal/retry"
)

// listen receives the messages for this process. Redis delivers each message at most once. If a message is lost, the next heartbeat shows
// the same state.
func (s *store) listen() {
	ctx := s.tier.Context()
	for pace := retry.New(); ctx.Err() == nil; retry.Pause(ctx, pace.NextBackOff()) {
		if err := advise(s.subscribe(ctx, pace.Reset)); outcomeOf(err) == queue.Denied {
			s.tier.Deafen(err)
		}
	}
}

// channel is the Pub/Sub channel to which the script publishes messages for this process.
func (s *store) channel() string { return "tierlock:" + s.name }

// subscribe receives messages on one connection, until the connection breaks or does not answer a ping.
func (s *store) subscribe(ctx context.Context, well func()) error {
	sub := s.client.Subscribe(ctx, s.channel())
	defer sub.Close()
	defer context.AfterFunc(ctx, func() { sub.Close() })()
	for asked := false; ; {
		m, err := sub.ReceiveTimeout(ctx, s.options.TTL/4)
		var timeout net.Error
		switch {
		case err == nil:
			asked = false
		case errors.As(err, &timeout) && timeout.Timeout() && !asked:
			asked = true
			if err := sub.Ping(ctx); err != nil {
				return err
			}
		default:
			return err
		}
		switch m := m.(type) {
		case *redis.Subscription:
			well()
			s.tier.Deafen(nil)
			s.tier.Renew() // the renewal shows what earlier messages would have said
		case *redis.Message:
			s.deliver(m.Payload)
		}
	}
}

// deliver handles a message. A message has the ID of a contender and the contender's state.
func (s *store) deliver(message string) {
	var words []string
	if json.Unmarshal([]byte(message), &words) == nil && len(words) > 1 { // otherwise another program has published it
		if v, err := view(words[0], words[1:]); err == nil {
			s.tier.Tell(v)
		}
	}
}

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

// listen takes the messages for this process. They come at most once: what is lost, the next heartbeat tells.
func (s *store) listen() {
	ctx := s.tier.Context()
	for pace := retry.New(); ctx.Err() == nil; retry.Pause(ctx, pace.NextBackOff()) {
		if err := advise(s.subscribe(ctx, pace.Reset)); outcomeOf(err) == queue.Denied {
			s.tier.Deafen(err)
		}
	}
}

// channel is where the script tells this process.
func (s *store) channel() string { return "tierlock:" + s.name }

// subscribe listens until the connection breaks, or has been silent although it was asked.
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
			s.tier.Renew() // what was said before was not heard
		case *redis.Message:
			s.deliver(m.Payload)
		}
	}
}

// deliver takes a message: the id of a contender, and what the script has to say of it.
func (s *store) deliver(message string) {
	var words []string
	if json.Unmarshal([]byte(message), &words) == nil && len(words) > 1 { // else it is not of the script
		if v, err := view(words[0], words[1:]); err == nil {
			s.tier.Tell(v)
		}
	}
}

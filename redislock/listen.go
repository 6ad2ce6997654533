package redislock

import (
	"context"
	"encoding/json"
	"errors"
	"net"

	"github.com/redis/go-redis/v9"

	"github.com/tierlock/tierlock/internal/retry"
)

// listen takes the messages for this process. They come at most once: what is lost, the next
// heartbeat tells.
func (s *store) listen() {
	for pace := retry.New(); s.ctx.Err() == nil; retry.Pause(s.ctx, pace.NextBackOff()) {
		err := advise(s.subscribe(pace.Reset))
		if classify(err) == permanent && s.sessions.deafen(err) {
			s.options.logger.Warn("redislock: this process is told of nothing: its turns wait for heartbeats", "err", err)
		}
	}
}

// channel is where the script tells this process.
func (s *store) channel() string { return "tierlock:" + s.name }

// subscribe listens until the connection breaks, or has been silent although it was asked.
func (s *store) subscribe(well func()) error {
	sub := s.client.Subscribe(s.ctx, s.channel())
	defer sub.Close()
	defer context.AfterFunc(s.ctx, func() { sub.Close() })()
	for asked := false; ; {
		m, err := sub.ReceiveTimeout(s.ctx, s.options.ttl/4)
		var timeout net.Error
		switch {
		case err == nil:
			asked = false
		case errors.As(err, &timeout) && timeout.Timeout() && !asked:
			asked = true
			if err := sub.Ping(s.ctx); err != nil {
				return err
			}
		default:
			return err
		}
		switch m := m.(type) {
		case *redis.Subscription:
			well()
			s.sessions.deafen(nil)
			s.renew.Set() // what was said before was not heard
		case *redis.Message:
			s.deliver(m.Payload)
		}
	}
}

// deliver takes a message: the id of a contender, and what the script has to say of it.
func (s *store) deliver(message string) {
	var words []string
	if json.Unmarshal([]byte(message), &words) != nil || len(words) < 2 {
		return // not of the script
	}
	if c, ok := s.byID.Load(words[0]); ok {
		if a, err := parse(words[1:]); err == nil {
			c.(*contender).apply(a, 0)
		}
	}
}

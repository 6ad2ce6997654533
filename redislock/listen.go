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
		s.subscribe(pace.Reset)
	}
}

// subscribe listens until the connection breaks, or has been silent although it was asked.
func (s *store) subscribe(well func()) {
	sub := s.client.Subscribe(s.ctx, "tierlock:"+s.name)
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
			if sub.Ping(s.ctx) != nil {
				return
			}
		default:
			return
		}
		switch m := m.(type) {
		case *redis.Subscription:
			well()
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

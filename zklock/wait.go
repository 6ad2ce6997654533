package zklock

import (
	"errors"
	"math/rand/v2"
	"time"

	"github.com/cenkalti/backoff/v4"
	"github.com/go-zookeeper/zk"
	"github.com/tierlock/tierlock/internal/retry"
	"github.com/tierlock/tierlock/zklock/internal/link"
)

// recheckAfter spreads the checks of many processes over time.
func recheckAfter(timeout time.Duration) time.Duration {
	return timeout/2 + rand.N(timeout)
}

// pause waits before another try, after err, and for the connection to be back. A try
// that is made once only ends with err.
func (a *attempt) pause(pace *backoff.ExponentialBackOff, err error) error {
	if a.once {
		return errors.Join(err, a.client.Err())
	}
	if err != nil {
		a.trouble.Store(&err)
	}
	if cause := retry.Pause(a.ctx, pace.NextBackOff()); cause != nil {
		return a.explain(cause)
	}
	_, cause := a.awaitSession()
	return cause
}

// awaitSession waits for a session, unless the attempt waits for nothing.
func (a *attempt) awaitSession() (*link.Session, error) {
	if !a.once {
		return a.client.link.AwaitSession(a.ctx)
	}
	s := a.client.link.Session()
	if err := a.client.Err(); err != nil || s == nil {
		return nil, errors.Join(err, zk.ErrNoServer)
	}
	return s, nil
}

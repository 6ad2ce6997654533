package zknode_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"testing"
	"time"

	"github.com/tierlock/tierlock/internal/test/need"
	"github.com/tierlock/tierlock/internal/zknode"
	"github.com/tierlock/tierlock/tier"
	"github.com/tierlock/tierlock/zklock/zktest"
)

// The session is renewed while all acquisitions are refused. Refusal reports that.
func TestAcquisitionsThatAreRefusedAgainAndAgainAreTold(t *testing.T) {
	for name, fate := range map[string]zktest.Action{"throttled": zktest.Throttled, "cut off each time": zktest.Cut} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(t *testing.T, s *zktest.Server) {
				p, log := startLogged(t, s)
				p.acquire(t).Release() // also creates the path
				locks := tier.New(zknode.Tier(p.Client))
				meet(s, func(f *zktest.Frame) bool { return f.Dir == zktest.Request && strings.HasPrefix(f.Path, path+"/_c_") }, fate)
				_, err := locks.Mutex(path).Acquire(within(t, time.Minute))
				var wait *tier.WaitError
				need.Must(t, fmt.Sprint("no WaitError: ", err), errors.As(err, &wait) && errors.Is(err, context.DeadlineExceeded))
				need.That(t, fmt.Sprint("no refusal in ", err), wait.Refusal != nil)
				wantErr(t, "Err", locks.Err(), tier.ErrUnavailable)
				need.Between(t, "warnings in "+log.String(), len(log.Lines(slog.LevelWarn, "the store refuses every request\" to=acquire")), 3, 6)
				s.Intercept(nil)
				hold := need.Get(locks.Mutex(path).Acquire(within(t, time.Minute)))(t)
				wantErr(t, "Err once it is served", locks.Err(), nil)
				wantLines(t, log, slog.LevelInfo, "the store serves requests again\" to=acquire", 1)
				need.OK(t, hold.Release())
			})
		})
	}
}

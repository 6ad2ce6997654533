package redislock

import (
	"errors"
	"strings"

	"github.com/redis/go-redis/v9"

	"github.com/tierlock/tierlock/internal/second"
)

// An outcome is what the error of a request says about it.
type outcome int

const (
	done      outcome = iota // answered with success
	refused                  // not applied, and may be another time
	permanent                // not applied, and never will be as things stand
	uncertain                // may have been applied, or may yet be
)

// passing are the errors of a server that does not serve for the moment, or not with these data. None
// of them comes once a script has begun to write.
var passing = []string{
	"BUSY", "CLUSTERDOWN", "LOADING", "MASTERDOWN", "MISCONF", "NOREPLICAS", "OOM", "READONLY", "TRYAGAIN",
	"ERR max number of clients reached",
}

// classify tells what became of a request that ended with err. Whatever is not known to be harmless
// is uncertain.
func classify(err error) outcome {
	var answer redis.Error
	switch {
	case err == nil:
		return done
	case errors.Is(err, errUsed), errors.Is(err, errDenied):
		return permanent
	case !errors.As(err, &answer):
		return uncertain
	}
	for _, prefix := range passing {
		// Before Redis 7, the error of a command in a script stands at the end.
		if redis.HasErrorPrefix(err, prefix) || strings.Contains(err.Error(), "-"+prefix+" ") {
			return refused
		}
	}
	return permanent
}

// begun reports whether an answer comes from within a script, which may have written before.
func begun(err error) bool { return err != nil && strings.Contains(err.Error(), "@user_script") }

// errGone says that a contender has lost its place in the queue and has to start again.
var errGone = errors.New("place in the queue lost")

func deleted(path string) error {
	return second.Lost(second.ByDeletion, "the key %s was deleted or overwritten, or its queue was", path)
}

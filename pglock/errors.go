package pglock

import (
	"errors"
	"slices"

	"github.com/jackc/pgx/v5/pgconn"

	"github.com/tierlock/tierlock/internal/second"
)

// An outcome is what the error of a request says about it.
type outcome int

const (
	done      outcome = iota // answered with success
	refused                  // not applied, and worth another try
	permanent                // not applied, and never will be as things stand
	uncertain                // may have been applied, or may yet be
)

// classify tells what became of a request that ended with err. A server that says why has rolled the
// transaction back, unless it is about to end the connection. The driver is not asked whether a request
// was sent: of a connection that breaks before the answer, it says that it was closed before.
func classify(err error) outcome {
	var refusal *pgconn.PgError
	var unsent *pgconn.ConnectError
	switch {
	case err == nil:
		return done
	case unfit(err):
		return permanent
	case !answered(err) && errors.As(err, &unsent):
		return refused
	case !errors.As(err, &refusal):
		return uncertain
	case answered(err):
		switch refusal.Code[:2] {
		case "40", "53", "54", "55": // a deadlock, no room, be it for notifications, a lock that cannot be had
			return refused
		}
		if refusal.Code == "57014" { // cancelled
			return refused
		}
		return permanent
	}
	return uncertain
}

// unfit reports whether err says that the database, or the way to it, is none for these locks.
func unfit(err error) bool {
	return slices.ContainsFunc([]error{errSchema, errUsed, errPooler, errRights, errEncoding}, func(unfit error) bool { return errors.Is(err, unfit) })
}

// answered reports whether a server has said something that holds, be it that it refuses. One that shuts
// down, does not serve yet, has no connection to spare, or is a standby, does not count.
func answered(err error) bool {
	var refusal *pgconn.PgError
	if err == nil || unfit(err) {
		return true
	}
	if !errors.As(err, &refusal) || len(refusal.Code) != 5 {
		return false
	}
	switch refusal.Code[:3] {
	case "080", "57P", "58P", "XX0":
		return false
	}
	return refusal.Code != "53300" && refusal.Code != "25006"
}

// errGone says that a contender has lost its place in the queue and has to start again.
var errGone = errors.New("place in the queue lost")

func deleted(id string) error { return second.Lost(second.ByDeletion, "contender %s was deleted", id) }

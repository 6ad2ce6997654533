package mysqllock

import (
	"errors"
	"slices"

	"github.com/go-sql-driver/mysql"

	"github.com/tierlock/tierlock/internal/queue"
)

// Numbers of errors of the server.
const (
	noTable = 1146
	killed  = 1317
)

// unsure are errors after which the server may have committed, or none of a server that goes on to serve.
var unsure = []uint16{
	0,      // no answer
	1053,   // it shuts down
	1180,   // an error in the commit
	killed, // the statement was
	1927,   // the connection was, in MariaDB
	3169,   // and in MySQL
}

// unwilling are errors of a server that has no room for a connection, or takes no writes.
var unwilling = []uint16{
	1040, 1203, 1226, // too many connections, of all or of this user, or too many statements
	1290, 1792, 1836, // it is read-only
}

// passing are refusals that another try may not meet.
var passing = []uint16{
	1205, 1213, // a lock wait timeout, a deadlock
	1021, 1030, 1037, 1038, 1041, 1114, 1206, // no room on the disk, in memory or for locks
	1969, 3024, // a time limit of the server
}

// refusal is the number with which a server has refused something, 0 if none has.
func refusal(err error) uint16 {
	if refusal, ok := errors.AsType[*mysql.MySQLError](err); ok {
		return refusal.Number
	}
	return 0
}

// classify returns the outcome of a request that ended with err. A server that gives a reason has rolled the transaction back. The
// exception is a statement that was killed: that may have happened after the commit.
func classify(err error) queue.Outcome {
	switch {
	case err == nil:
		return queue.Done
	case errors.Is(err, errOver):
		return queue.Expired
	case unfit(err):
		return queue.Denied
	case errors.Is(err, errNew), errors.Is(err, errBusy), errors.As(err, new(notSent)):
		return queue.Failed
	}
	switch number := refusal(err); {
	case slices.Contains(unsure, number):
		return queue.Unknown
	case slices.Contains(unwilling, number), slices.Contains(passing, number):
		return queue.Failed
	}
	return queue.Denied
}

// unfit reports whether err says that the server, the database, the user or the proxy in between is none for these locks.
func unfit(err error) bool {
	return slices.ContainsFunc([]error{errServer, errSchema, errRights, errProxy}, func(unfit error) bool { return errors.Is(err, unfit) })
}

// answered reports whether a server has said something that holds, be it that it refuses. One that shuts down, has no connection to
// spare, or is read-only does not count.
func answered(err error) bool {
	if err == nil || errors.Is(err, errOver) || unfit(err) {
		return true
	}
	number := refusal(err)
	return !slices.Contains(unsure, number) && !slices.Contains(unwilling, number)
}

// A notSent is why there is no connection for a request.
type notSent struct{ error }

func (e notSent) Unwrap() error { return e.error }

var errOver = errors.New("the server does not know it any more")

// errNew says that there is another connection, maybe to another server, over which the session was not renewed yet.
var errNew = errors.New("over a new connection the session was not renewed yet")

// errBusy says that no connection was free for as long as a request is worth. It says nothing of the server; a renewal does.
var errBusy = errors.New("no connection for requests is free yet")

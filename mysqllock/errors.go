package mysqllock

import (
	"errors"
	"slices"

	"github.com/go-sql-driver/mysql"

	"github.com/tierlock/tierlock/internal/queue"
)

// These are numbers of server errors.
const (
	noTable = 1146
	killed  = 1317
)

// unsure has the numbers of errors after which it is unknown whether the server has committed. After most of them, the server or the
// connection cannot be used any more.
var unsure = []uint16{
	0,      // no answer
	1053,   // the server shuts down
	1180,   // an error during the commit
	killed, // the statement was killed
	1927,   // the connection was killed, in MariaDB
	3169,   // the connection was killed, in MySQL
}

// unwilling has the numbers of errors of a server that accepts no more connections, or no writes.
var unwilling = []uint16{
	1040, 1203, 1226, // too many connections in all, too many of this user, or a resource limit of this user
	1290, 1792, 1836, // the server or the transaction is read-only
}

// passing has the numbers of errors after which another try may succeed.
var passing = []uint16{
	1205, 1213, // a lock wait timeout; a deadlock
	1021, 1030, 1037, 1038, 1041, 1114, 1206, // the disk, the memory or the lock table is full
	1969, 3024, // a time limit of the server was exceeded
}

// refusal returns the number of a server error. It returns 0 if err is no server error.
func refusal(err error) uint16 {
	if refusal, ok := errors.AsType[*mysql.MySQLError](err); ok {
		return refusal.Number
	}
	return 0
}

// classify returns the outcome of a request that ended with err. If the server has returned an error, it has rolled the transaction back.
// The errors in unsure are exceptions: for example, a statement may have been killed after its commit.
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

// unfit reports whether err says that the locks cannot work with this server, database, user or proxy.
func unfit(err error) bool {
	return slices.ContainsFunc([]error{errServer, errSchema, errRights, errProxy}, func(unfit error) bool { return errors.Is(err, unfit) })
}

// answered reports whether a request that ended with err was answered by a server that can serve requests. A refusal is an answer. A server
// that is shutting down, is read-only, or accepts no more connections cannot serve requests.
func answered(err error) bool {
	if err == nil || errors.Is(err, errOver) || unfit(err) {
		return true
	}
	number := refusal(err)
	return !slices.Contains(unsure, number) && !slices.Contains(unwilling, number)
}

// A notSent is the error that no connection for a request could be opened, so the request was not sent.
type notSent struct{ error }

func (e notSent) Unwrap() error { return e.error }

var errOver = errors.New("the server no longer knows this session")

// errNew means that the connection is new and may lead to another server. A renewal of the session on this connection has to come first.
var errNew = errors.New("the session is not yet renewed on the new connection")

// errBusy means that no connection for requests was free within the time limit of a request. It does not mean that the server cannot be
// reached. Only a renewal shows that.
var errBusy = errors.New("all connections for requests are busy")

package pglock

import (
	"errors"
	"slices"
	"strconv"
	"strings"

	"github.com/jackc/pgx/v5/pgconn"

	"github.com/tierlock/tierlock/internal/queue"
)

// classify tells what became of a request that ended with err. A server that says why has rolled the
// transaction back, unless it is about to end the connection. The driver is not asked whether a request
// was sent: of a connection that breaks before the answer, it says that it was closed before.
func classify(err error) queue.Outcome {
	switch {
	case err == nil:
		return queue.Done
	case errors.Is(err, errOver):
		return queue.Expired
	case unfit(err):
		return queue.Denied
	case answered(err):
		switch refusal(err)[:2] {
		case "40", "53", "54", "55", "57": // a deadlock, no room, be it for notifications, a lock that cannot be had; cancelled
			return queue.Failed
		}
		return queue.Denied
	case errors.Is(err, errNew), errors.Is(err, errBusy), errors.As(err, new(*pgconn.ConnectError)):
		return queue.Failed
	}
	return queue.Unknown
}

// refusal is the SQLSTATE with which a server has refused something, empty if none has.
func refusal(err error) string {
	if refusal, ok := errors.AsType[*pgconn.PgError](err); ok {
		return refusal.Code
	}
	return ""
}

// permitsIn is how many permits there are, as a server says that has refused another number of them.
func permitsIn(err error) (n int) {
	if refusal, ok := errors.AsType[*pgconn.PgError](err); ok {
		n, _ = strconv.Atoi(refusal.Detail)
	}
	return n
}

// unfit reports whether err says that the database, or the way to it, is none for these locks.
func unfit(err error) bool {
	return unsent(err) || slices.ContainsFunc([]error{errServer, errSchema, errUsed, errPooler, errNoLease, errRights, errEncoding},
		func(unfit error) bool { return errors.Is(err, unfit) })
}

// unsent reports whether the driver has refused to encode a value. Then nothing was sent, and the server is not away. The driver has no
// other mark for this than the text.
func unsent(err error) bool {
	return err != nil && strings.Contains(err.Error(), "failed to encode args[")
}

// answered reports whether a server has said something that holds, be it that it refuses. One that shuts
// down, does not serve yet, has no connection to spare, or is a standby, does not count.
func answered(err error) bool {
	if err == nil || errors.Is(err, errOver) || unfit(err) {
		return true
	}
	state := refusal(err)
	if len(state) != 5 {
		return false
	}
	switch state[:3] {
	case "080", "57P", "58P", "XX0":
		return false
	}
	return state != "53300" && state != "25006"
}

var errOver = errors.New("the server no longer knows it")

// errNew says that there is another connection, maybe to another server, over which the session was not renewed yet.
var errNew = errors.New("the session has not been renewed on the new connection yet")

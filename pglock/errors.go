package pglock

import (
	"errors"
	"slices"
	"strconv"
	"strings"

	"github.com/jackc/pgx/v5/pgconn"

	"github.com/tierlock/tierlock/internal/queue"
)

// classify says whether a request that ended with err was executed. If the server returned an error, it has rolled the transaction back,
// unless it is about to end the connection. The driver cannot say whether a request was sent: if a connection breaks before the answer,
// it reports that the connection was already closed.
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

// refusal returns the SQLSTATE of the server's error, empty if there is none.
func refusal(err error) string {
	if refusal, ok := errors.AsType[*pgconn.PgError](err); ok {
		return refusal.Code
	}
	return ""
}

// permitsIn returns the number of permits that the server has named when it refused another number.
func permitsIn(err error) (n int) {
	if refusal, ok := errors.AsType[*pgconn.PgError](err); ok {
		n, _ = strconv.Atoi(refusal.Detail)
	}
	return n
}

// unfit reports whether err says that these locks cannot work with the database, or through what is in between.
func unfit(err error) bool {
	return unsent(err) || slices.ContainsFunc([]error{errServer, errSchema, errUsed, errPooler, errNoLease, errRights, errEncoding},
		func(unfit error) bool { return errors.Is(err, unfit) })
}

// unsent reports whether the driver has refused to encode a value. In this case nothing was sent, and the server is not to be regarded as
// unreachable. Only the text of the error shows it.
func unsent(err error) bool {
	return err != nil && strings.Contains(err.Error(), "failed to encode args[")
}

// answered reports whether a server has given an answer that counts, even a refusal. A server that is shutting down, starting, out of
// connections, or a standby does not count.
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

// errNew says that the session was not renewed yet over a new connection, which may lead to another server.
var errNew = errors.New("the session has not been renewed on the new connection yet")

package pglock

import (
	"errors"
	"slices"
	"strconv"
	"strings"

	"github.com/jackc/pgx/v5/pgconn"

	"github.com/tierlock/tierlock/internal/queue"
)

// classify returns the outcome of a request that ended with err. If the server has returned an error, it has rolled the transaction back,
// unless it is about to end the connection. If the connection breaks before the answer, the driver says that the connection was already
// closed. Its error therefore does not tell whether the request was sent.
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
		case "40", "53", "54", "55", "57": // deadlock, resources or notification queue exhausted, lock not available, cancelled
			return queue.Failed
		}
		return queue.Denied
	case errors.Is(err, errNew), errors.Is(err, errBusy), errors.As(err, new(*pgconn.ConnectError)):
		return queue.Failed
	}
	return queue.Unknown
}

// refusal returns the SQLSTATE of an error of the server. It returns "" if err is no such error.
func refusal(err error) string {
	if refusal, ok := errors.AsType[*pgconn.PgError](err); ok {
		return refusal.Code
	}
	return ""
}

// permitsIn is called when the server has refused a total number of permits. It returns the right number, which is in the error.
func permitsIn(err error) (n int) {
	if refusal, ok := errors.AsType[*pgconn.PgError](err); ok {
		n, _ = strconv.Atoi(refusal.Detail)
	}
	return n
}

// unfit reports whether err says that the locks cannot work with this database, or through a pooler.
func unfit(err error) bool {
	return unsent(err) || slices.ContainsFunc([]error{errServer, errSchema, errUsed, errPooler, errNoLease, errRights, errEncoding},
		func(unfit error) bool { return errors.Is(err, unfit) })
}

// unsent reports whether the driver has refused to encode a value. In this case nothing was sent, and the error does not mean that the
// server cannot be reached. Only the text of the error shows this case.
func unsent(err error) bool {
	return err != nil && strings.Contains(err.Error(), "failed to encode args[")
}

// answered reports whether a request that ended with err was answered by a server that can serve requests. A refusal is an answer. A server
// that is starting, shutting down, a standby, or out of connections cannot serve requests.
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

var errOver = errors.New("the server no longer knows this session")

// errNew means that the connection is new and may lead to another server. A renewal of the session on this connection has to come first.
var errNew = errors.New("the session is not yet renewed on the new connection")

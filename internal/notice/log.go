package notice

import (
	"log/slog"

	"github.com/tierlock/tierlock/internal/second"
)

// A Log is where people are told what becomes of the contenders of a store, in the same words whatever the store is.
type Log struct {
	Logger  *slog.Logger
	Package string // that logs
}

// Lost says that a lock was lost.
func (l Log) Lost(path string, token int64, cause error) {
	l.Logger.Warn(l.Package+": lock lost", "path", path, "token", token, "cause", cause)
}

// Stays says that the store refuses to remove a contender that nobody wants.
func (l Log) Stays(path, id string, err error) {
	l.Logger.Warn(l.Package+": cannot remove a contender; it stays in the queue until its session ends, also in the way of this process",
		"path", path, "id", id, "err", err)
}

// Alone says that the store refuses to let readers in beside a writer that reads.
func (l Log) Alone(path string, err error) {
	l.Logger.Warn(l.Package+": a writer that reads now cannot let readers of other processes in; they wait for its release",
		"path", path, "err", err)
}

// InGracePeriod says that the store grants nothing.
func (l Log) InGracePeriod(q *second.GracePeriodError) {
	l.Logger.Warn(l.Package+": the store grants nothing as yet", "until", q.Until, "reason", q.Reason)
}

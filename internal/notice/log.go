package notice

import (
	"log/slog"

	"github.com/tierlock/tierlock/internal/second"
)

// A Log logs events of contenders. The texts are the same for all stores.
type Log struct {
	Logger  *slog.Logger
	Package string // the name of the package that logs
}

// Lost logs that a lock was lost.
func (l Log) Lost(path string, token int64, cause error) {
	l.Logger.Warn(l.Package+": lock lost", "path", path, "token", token, "cause", cause)
}

// Stays logs that the store refuses to delete an abandoned contender.
func (l Log) Stays(path, id string, err error) {
	l.Logger.Warn(l.Package+": cannot delete a queue entry; it blocks the lock until its session ends",
		"path", path, "id", id, "err", err)
}

// Alone logs that the store refuses to turn a writer into a reader, so that other readers do not get the lock.
func (l Log) Alone(path string, err error) {
	l.Logger.Warn(l.Package+": cannot downgrade a write lock; readers of other processes wait until it is released",
		"path", path, "err", err)
}

// InGracePeriod logs that the store grants nothing until the end of a grace period.
func (l Log) InGracePeriod(q *second.GracePeriodError) {
	l.Logger.Warn(l.Package+": grace period; the store grants no lock until it ends", "until", q.Until, "reason", q.Reason)
}

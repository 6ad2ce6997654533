// Package advisory is a second tier over PostgreSQL's session advisory locks. What is promised of
// it, and what is not, is said at pglock.NewAdvisory.
//
// Each contender has a connection of its own, in whose session it waits for the advisory lock of
// its path and holds it. The server ends a session that is idle for the TTL, which is the lease.
// Sessions that nobody uses are kept for others for a while. One more connection, the ear, hears
// who waits and who is asked, and looks after those that wait: their own connections are busy.
package advisory

import (
	"context"
	"crypto/sha256"
	"encoding/binary"
	"log/slog"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
)

// A Config is what the tier has to know of the server and of its user.
type Config struct {
	Pool      *pgxpool.Pool // says how to connect
	TTL       time.Duration
	Margin    time.Duration // how long before its end at the server a lease counts as over
	Logger    *slog.Logger
	Label     string
	CheckPath func(string) error
	// CheckSchema says whether the database has what the tier needs.
	CheckSchema func(context.Context, *pgx.Conn) error
	// Permanent reports whether retrying cannot fix an error.
	Permanent func(error) bool
}

// KeyOf is the key of the advisory lock of a path: the first eight bytes of the SHA-256 of its
// name here. Two paths with the same key exclude each other, no more.
func KeyOf(path string) int64 {
	sum := sha256.Sum256([]byte("tierlock:" + path))
	return int64(binary.BigEndian.Uint64(sum[:8]))
}

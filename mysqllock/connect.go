package mysqllock

import (
	"cmp"
	"context"
	"database/sql"
	"database/sql/driver"
	"errors"
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"
	"time"
)

// A conn is a connection for the locks alone. It never goes back to the pool: its settings are ours, and another process may be about
// to end a statement on it.
type conn struct {
	*sql.Conn
	prepared map[string]*sql.Stmt
}

// connect takes a connection of the pool, and makes the settings that the locks depend on. Each step is one round trip.
func connect(ctx context.Context, db *sql.DB, ttl time.Duration) (*conn, error) {
	taken, err := db.Conn(ctx)
	if err != nil {
		return nil, err
	}
	c := &conn{taken, make(map[string]*sql.Stmt)}
	if err := c.prepare(ctx, ttl); err != nil {
		c.discard()
		return nil, err
	}
	return c, nil
}

// discard closes the connection.
func (c *conn) discard() {
	c.Raw(func(any) error { return driver.ErrBadConn })
	c.Close()
}

// statement prepares a statement once, so that it takes one round trip from then on.
func (c *conn) statement(ctx context.Context, sql string) (*sql.Stmt, error) {
	if s := c.prepared[sql]; s != nil {
		return s, nil
	}
	s, err := c.PrepareContext(ctx, sql)
	if err == nil {
		c.prepared[sql] = s
	}
	return s, err
}

// query executes a prepared statement. After it the connection takes another one, once the rows are closed.
func (c *conn) query(ctx context.Context, sql string, args ...any) (*sql.Rows, error) {
	s, err := c.statement(ctx, sql)
	if err != nil {
		return nil, err
	}
	return s.QueryContext(ctx, args...)
}

// row executes a prepared statement, and reads the first row of its answer. It is [sql.ErrNoRows] if there is none.
func (c *conn) row(ctx context.Context, statement string, args []any, into ...any) error {
	rows, err := c.query(ctx, statement, args...)
	if err != nil {
		return err
	}
	defer rows.Close()
	if !rows.Next() {
		if err = rows.Err(); err == nil {
			err = sql.ErrNoRows
		}
		return err
	}
	if err := rows.Scan(into...); err != nil {
		return err
	}
	return rows.Close()
}

// exec executes a prepared statement without an answer.
func (c *conn) exec(ctx context.Context, statement string, args ...any) error {
	s, err := c.statement(ctx, statement)
	if err == nil {
		_, err = s.ExecContext(ctx, args...)
	}
	return err
}

// A dialect is what MySQL and MariaDB have each of their own.
type dialect struct {
	life      string // what tells this run of this server from any other
	unlimited string // has no statement end by its time
	first     int    // the first release that can be used, as 1000 * major + minor
}

// The start of the server is when it has been up for zero seconds. Both numbers are of the moment in which the statement has begun, so
// their difference is the same each time.
var (
	mariaDB = dialect{
		life: "CONCAT(@@server_id, ' ', @@hostname, ' ', @@port, ' ', UNIX_TIMESTAMP() - (SELECT VARIABLE_VALUE " +
			"FROM information_schema.GLOBAL_STATUS WHERE VARIABLE_NAME = 'UPTIME'))",
		unlimited: "max_statement_time = 0", first: 10_006,
	}
	mySQL = dialect{
		life: "CONCAT(@@server_uuid, ' ', UNIX_TIMESTAMP() - (SELECT VARIABLE_VALUE FROM performance_schema.global_status " +
			"WHERE VARIABLE_NAME = 'Uptime'))",
		unlimited: "max_execution_time = 0", first: 8_000,
	}
)

func (c *conn) prepare(ctx context.Context, ttl time.Duration) error {
	var version, comment string
	var zero int
	var ticks bool
	if err := c.QueryRowContext(ctx, "SELECT VERSION(), @@version_comment, SLEEP(0.001), SYSDATE(6) > NOW(6)").
		Scan(&version, &comment, &zero, &ticks); err != nil {
		return err
	}
	d, err := checkServer(version, comment)
	if err == nil && !ticks {
		err = fmt.Errorf("%w: it runs with --sysdate-is-now, so that no procedure can read the clock; leave that option out", errServer)
	}
	if err == nil {
		err = c.checkWriters(ctx)
	}
	if err != nil {
		return err
	}
	wait := max(1, int(ttl/8/time.Second)) // a refusal comes before the client gives up
	settings := fmt.Sprintf("SET SESSION time_zone = '+00:00', SESSION autocommit = 1, SESSION sql_mode = '', SESSION wait_timeout = %d, "+
		"SESSION innodb_lock_wait_timeout = %d, SESSION lock_wait_timeout = %[2]d, SESSION group_concat_max_len = 1000000, "+
		"SESSION %s, @tierlock_life = %s", 2_000_000, wait, d.unlimited, d.life)
	for _, sql := range []string{settings, "SET SESSION TRANSACTION ISOLATION LEVEL READ COMMITTED, READ WRITE"} {
		if _, err := c.ExecContext(ctx, sql); err != nil {
			return err
		}
	}
	return nil
}

// errProxy says that what is said on a connection does not reach one session of one server.
var errProxy = errors.New("a proxy in between sends reads to another server than writes, or moves connections; " +
	"connect to the primary itself")

// errRights says that the user may not do all that locks need.
var errRights = errors.New("rights are missing")

// checkRights returns errRights, with what the server says of it, unless the user has all that locks need. It also compares the server
// that executes procedures with the one that answers queries.
func (c *conn) checkRights(ctx context.Context) error {
	var written, read string
	err := c.QueryRowContext(ctx, "CALL tierlock_check()").Scan(&written)
	if err == nil {
		err = c.QueryRowContext(ctx, "SELECT @tierlock_life").Scan(&read)
	}
	switch {
	case slices.Contains(denied, refusal(err)):
		return fmt.Errorf("%w: %w; grant what mysqllock.Migrate names", errRights, err)
	case err == nil && written != read:
		return errProxy
	}
	return err
}

// denied are refusals for want of a right on a table, a column, a routine or a database.
var denied = []uint16{1044, 1142, 1143, 1227, 1370}

// errServer says that the locks cannot be on this server.
var errServer = errors.New("the locks cannot be on this server")

// others are systems that speak the protocol, and do not lock rows as InnoDB does, or have no stored procedures.
var others = []string{"TiDB", "Vitess", "OceanBase", "SingleStore", "MemSQL", "Dolt", "PlanetScale", "ClickHouse", "StarRocks", "Doris"}

// checkServer returns the dialect of a server, by what it says of itself.
func checkServer(version, comment string) (dialect, error) {
	for _, name := range others {
		if strings.Contains(version+" "+comment, name) {
			return dialect{}, fmt.Errorf("%w: %s (%s) is neither MySQL nor MariaDB", errServer, name, version)
		}
	}
	d, name := mySQL, "MySQL 8.0"
	if strings.Contains(version, "MariaDB") {
		d, name = mariaDB, "MariaDB 10.6"
	}
	major, rest, _ := strings.Cut(strings.TrimPrefix(version, "5.5.5-"), ".")
	minor, _, _ := strings.Cut(rest, ".")
	numbers := [2]int{}
	for i, text := range []string{major, minor} {
		n, err := strconv.Atoi(text)
		if err != nil {
			return d, fmt.Errorf("%w: its version is %q", errServer, version)
		}
		numbers[i] = min(n, math.MaxInt16)
	}
	if 1000*numbers[0]+numbers[1] < d.first {
		return d, fmt.Errorf("%w: its version is %s, and the locks need %s or later", errServer, version, name)
	}
	return d, nil
}

// checkWriters returns errServer for a server whose settings the locks cannot live with.
func (c *conn) checkWriters(ctx context.Context) error {
	rows, err := c.QueryContext(ctx, "SHOW GLOBAL VARIABLES WHERE Variable_name IN "+
		"('wsrep_on', 'group_replication_single_primary_mode', 'group_replication_group_name', 'binlog_format', 'log_bin')")
	if err != nil {
		return err
	}
	defer rows.Close()
	is := make(map[string]string)
	for rows.Next() {
		var name, value string
		if err := rows.Scan(&name, &value); err != nil {
			return err
		}
		is[name] = value
	}
	return cmp.Or(rows.Err(), checkSettings(is))
}

// checkSettings refuses clusters in which several servers take writes: there, two transactions may lock the same row at once. It also
// refuses a binary log that cannot record what the procedures do.
func checkSettings(is map[string]string) error {
	switch {
	case is["wsrep_on"] == "ON":
		return fmt.Errorf("%w: it is part of a Galera cluster (wsrep_on), where rows are not locked on the other nodes", errServer)
	case is["group_replication_group_name"] != "" && is["group_replication_single_primary_mode"] == "OFF":
		return fmt.Errorf("%w: it is part of a replication group with several primaries, where rows are not locked on the others; "+
			"use single-primary mode", errServer)
	case is["log_bin"] == "ON" && is["binlog_format"] == "STATEMENT":
		return fmt.Errorf("%w: its binlog_format is STATEMENT, which cannot record these transactions; set it to ROW or MIXED", errServer)
	}
	return nil
}

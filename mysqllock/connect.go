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

// A conn is a connection that is used only for locks. It never goes back to the pool: it has the settings of this package, and another
// process may be about to kill a statement on it.
type conn struct {
	*sql.Conn
	prepared map[string]*sql.Stmt
}

// connect takes a connection from the pool, and sets the settings that the locks depend on. Each step is one round trip.
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

// discard closes the connection instead of giving it back to the pool.
func (c *conn) discard() {
	c.Raw(func(any) error { return driver.ErrBadConn })
	c.Close()
}

// statement returns a prepared statement. It prepares each statement once, so that later executions take one round trip.
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

// query executes a prepared statement. The caller has to close the rows before it sends the next statement on the connection.
func (c *conn) query(ctx context.Context, sql string, args ...any) (*sql.Rows, error) {
	s, err := c.statement(ctx, sql)
	if err != nil {
		return nil, err
	}
	return s.QueryContext(ctx, args...)
}

// row executes a prepared statement, and scans the first row of the answer. If there is no row, it returns [sql.ErrNoRows].
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

// exec executes a prepared statement that returns no rows.
func (c *conn) exec(ctx context.Context, statement string, args ...any) error {
	s, err := c.statement(ctx, statement)
	if err == nil {
		_, err = s.ExecContext(ctx, args...)
	}
	return err
}

// A dialect has the SQL and the version in which MySQL and MariaDB differ.
type dialect struct {
	life      string // an SQL expression that identifies this server and its start
	unlimited string // an SQL setting that switches off the time limit of statements
	first     int    // the oldest release that can be used, as 1000 * major + minor
}

// These expressions compute the time of the server's start as the present time minus the uptime. The server takes both numbers when the
// statement begins, so the difference is the same each time.
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
		err = fmt.Errorf("%w: it runs with --sysdate-is-now, so procedures cannot read the clock; leave that option out", errServer)
	}
	if err == nil {
		err = c.checkWriters(ctx)
	}
	if err != nil {
		return err
	}
	wait := max(1, int(ttl/8/time.Second)) // the server refuses a statement before the client gives up
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

// errProxy means that the statements on a connection do not all reach the same session of the same server.
var errProxy = errors.New("a proxy in between sends reads and writes to different servers, or moves connections to other servers; " +
	"connect to the primary directly")

// errRights means that the database user lacks rights that the locks need.
var errRights = errors.New("rights are missing")

// checkRights returns an error if the user lacks rights that the locks need. The error wraps errRights and the error of the server.
// checkRights also compares the server that executes procedures with the server that answers queries. If they differ, it returns errProxy.
func (c *conn) checkRights(ctx context.Context) error {
	var written, read string
	err := c.QueryRowContext(ctx, "CALL tierlock_check()").Scan(&written)
	if err == nil {
		err = c.QueryRowContext(ctx, "SELECT @tierlock_life").Scan(&read)
	}
	switch {
	case slices.Contains(denied, refusal(err)):
		return fmt.Errorf("%w: %w; grant the rights that mysqllock.Migrate names", errRights, err)
	case err == nil && written != read:
		return errProxy
	}
	return err
}

// denied has the numbers of errors that mean that the user lacks a right: on a table, a column, a routine or a database.
var denied = []uint16{1044, 1142, 1143, 1227, 1370}

// errServer means that the locks do not work on this server.
var errServer = errors.New("this server cannot keep the promises of the locks")

// The list others has the names of database systems that speak MySQL's protocol but cannot be used. They do not lock rows as InnoDB does,
// or they have no stored procedures.
var others = []string{"TiDB", "Vitess", "OceanBase", "SingleStore", "MemSQL", "Dolt", "PlanetScale", "ClickHouse", "StarRocks", "Doris"}

// checkServer returns the dialect of a server. version and comment are texts with which the server describes itself. For a server that
// cannot be used, checkServer returns an error.
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

// checkWriters returns errServer if the locks do not work with the settings of the server.
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

// checkSettings returns an error for a cluster in which several servers accept writes. In such a cluster, two transactions may lock the
// same row at the same time. It also returns an error if the binary log cannot record the changes that the procedures make.
func checkSettings(is map[string]string) error {
	switch {
	case is["wsrep_on"] == "ON":
		return fmt.Errorf("%w: it is part of a Galera cluster (wsrep_on), where a lock on a row has no effect on the other nodes", errServer)
	case is["group_replication_group_name"] != "" && is["group_replication_single_primary_mode"] == "OFF":
		return fmt.Errorf("%w: it is part of a replication group with several primaries, where a lock on a row has no effect on the others; "+
			"use single-primary mode", errServer)
	case is["log_bin"] == "ON" && is["binlog_format"] == "STATEMENT":
		return fmt.Errorf("%w: its binlog_format is STATEMENT, which cannot record these transactions; set it to ROW or MIXED", errServer)
	}
	return nil
}

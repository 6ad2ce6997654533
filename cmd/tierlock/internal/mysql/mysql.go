// Package mysql connects the command to MySQL or MariaDB, and creates the tables there.
package mysql

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"io"
	"net"
	"slices"
	"strings"
	"time"

	"github.com/go-sql-driver/mysql"

	"github.com/tierlock/tierlock/cmd/tierlock/internal/command"
	"github.com/tierlock/tierlock/cmd/tierlock/internal/inspect"
	"github.com/tierlock/tierlock/mysqllock"
)

// Store describes MySQL and MariaDB to the command.
func Store() *command.Store {
	return &command.Store{
		Name: "MySQL", Schemes: []string{"mysql"}, Example: "mysql://app@db/app", About: about, Auth: "user:password", Notes: notes,
		NoTLS: "its URL says such as ?tls=true",
		Check: check, ValidatePath: mysqllock.ValidatePath, Dial: dial, Unreachable: unreachable,
		Tasks: []command.Task{{Name: "migrate", Do: migrate}},
	}
}

const about = `    A URL with one server of MySQL or MariaDB, and the database. The default port is 3306. After ? come
    parameters of go-sql-driver/mysql, such as ?tls=true. Credentials are user:password.
`

// The map notes has the parts of the help about MySQL.
var notes = map[string]string{
	"run": "the database needs the tables of package mysqllock: before the first use, run tierlock migrate.",
	"ls": `a PATH need not begin with a slash, and / stands for all locks and semaphores in use in the
database. It takes one query for the paths, and two for the queues of each.`,
	"who": `SEQ is the place in the queue. "grace-period" marks the process that gets the lock when the grace
period of the server ends.`,
	"doctor": `it also checks privileges, whether the server is read-only, whether commits survive a crash, and
when the holder's session ends if its process has died.`,
	"migrate": `it creates or upgrades the tables and procedures whose names begin with tierlock_. Another user
of locks needs

  GRANT SELECT, INSERT, UPDATE, DELETE, EXECUTE ON app.* TO locker;`,
}

func check(a *command.Address) error {
	_, err := configOf(a)
	return err
}

func configOf(a *command.Address) (*mysql.Config, error) {
	servers, rest, _ := strings.Cut(a.Servers, "/")
	if strings.ContainsAny(servers, "?#") {
		servers, rest = "", ""
	}
	name, _, _ := strings.Cut(rest, "?")
	switch {
	case servers == "" || strings.Contains(servers, ","):
		return nil, errors.New("the URL of the database: want one server, as in mysql://app@db:3306/app")
	case name == "":
		return nil, errors.New("the URL names no database; want a URL such as mysql://app@db:3306/app")
	}
	config, err := mysql.ParseDSN("tcp(" + servers + ")/" + rest)
	if err != nil {
		return nil, fmt.Errorf("the URL of the database: %w", err)
	}
	if _, port, err := net.SplitHostPort(config.Addr); err != nil || strings.Trim(port, "0123456789") != "" {
		return nil, errors.New("the URL of the database has a port that is not a number")
	}
	login, err := a.Login()
	if login != nil {
		config.User = login.Username()
		config.Passwd, _ = login.Password()
	}
	config.Logger = new(mysql.NopLogger) // the errors contain what the client would log
	return config, err
}

// connect returns a pool after a server has answered.
func connect(ctx context.Context, a *command.Address) (*sql.DB, *mysql.Config, error) {
	config, err := configOf(a)
	if err != nil {
		return nil, nil, err
	}
	connector, err := mysql.NewConnector(config)
	if err != nil {
		return nil, nil, err
	}
	db := sql.OpenDB(connector)
	if err := command.Answer(ctx, refused, func() error { return db.PingContext(ctx) }); err != nil {
		db.Close()
		return nil, nil, err
	}
	return db, config, nil
}

// dial sets the margin of the lease itself, so that the command knows it.
func dial(ctx context.Context, a *command.Address, o command.Options) (*command.Locks, error) {
	db, config, err := connect(ctx, a)
	if err != nil {
		return nil, err
	}
	err = db.QueryRowContext(ctx, "SELECT version FROM tierlock_state").Scan(new(int))
	if number(err) == noTable || errors.Is(err, sql.ErrNoRows) {
		db.Close()
		return nil, fmt.Errorf("database %s has no tierlock tables; run tierlock migrate or mysqllock.Migrate", config.DBName)
	}
	margin := o.Session / 3
	locks, err := mysqllock.New(ctx, db, o.Registry(margin)...)
	if err != nil {
		db.Close()
		return nil, err
	}
	rows := rows{db}
	return &command.Locks{
		Registry:   locks,
		Margin:     func() time.Duration { return margin },
		Desk:       command.RegistryDesk{Registry: inspect.Registry{Locks: locks, Paths: rows.paths}, Find: rows.find},
		Disconnect: db.Close,
	}, nil
}

func migrate(ctx context.Context, a *command.Address, w io.Writer) error {
	db, config, err := connect(ctx, a)
	if err != nil {
		return err
	}
	defer db.Close()
	if err := mysqllock.Migrate(ctx, db); err != nil {
		return err
	}
	_, err = fmt.Fprintf(w, "database %s has the tierlock tables\n", config.DBName)
	return err
}

const noTable = 1146

// The function number returns the number of the error with which a server has answered. If no server has answered, it returns 0.
func number(err error) uint16 {
	if answer, ok := errors.AsType[*mysql.MySQLError](err); ok {
		return answer.Number
	}
	return 0
}

// The function refused reports whether a server has refused permanently, so that a retry would get the same answer. The listed errors are
// not permanent: the server is starting or stopping, has no free connection, or has rolled back because of other transactions.
func refused(err error) bool {
	return !slices.Contains([]uint16{0, 1040, 1053, 1203, 1205, 1213, 1226, 1290, 1836, 1927}, number(err))
}

// unreachable reports whether no server is available for this user.
func unreachable(err error) bool {
	return slices.Contains([]uint16{1045, 1130, 1698}, number(err)) || errors.As(err, new(net.Error))
}

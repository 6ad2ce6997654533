// Package postgres connects the command to PostgreSQL, and creates the schema there.
package postgres

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/tierlock/tierlock/cmd/tierlock/internal/command"
	"github.com/tierlock/tierlock/cmd/tierlock/internal/inspect"
	"github.com/tierlock/tierlock/pglock"
)

// Store describes PostgreSQL to the command.
func Store() *command.Store {
	return &command.Store{
		Name: "PostgreSQL", Schemes: []string{"postgres", "postgresql"}, Example: "postgres://app@db/app", About: about,
		Auth: "user:password (or the password into PGPASSWORD or a file of PGPASSFILE)", Notes: notes,
		NoTLS: "its URL says such as ?sslmode=verify-full&sslrootcert=FILE",
		Check: check, ValidatePath: pglock.ValidatePath, Dial: dial, Unreachable: unreachable, Tasks: tasks(),
	}
}

func check(a *command.Address) error {
	_, err := configOf(a)
	return err
}

func configOf(a *command.Address) (*pgxpool.Config, error) {
	config, err := pgxpool.ParseConfig(a.URL)
	if err != nil {
		return nil, fmt.Errorf("the URL of the database: %w", err)
	}
	login, err := a.Login()
	if err == nil && login != a.User { // otherwise the login comes from the URL and from the environment variables of PostgreSQL
		config.ConnConfig.User = login.Username()
		config.ConnConfig.Password, _ = login.Password()
	}
	return config, err
}

// dial sets the margin itself, so that the command knows it.
func dial(ctx context.Context, a *command.Address, o command.Options) (*command.Locks, error) {
	config, err := configOf(a)
	if err != nil {
		return nil, err
	}
	pool, present, err := connect(ctx, config)
	if err != nil {
		return nil, err
	}
	if !present {
		pool.Close()
		return nil, fmt.Errorf("database %s has no schema tierlock; run tierlock migrate or pglock.Migrate, or the SQL of "+
			"tierlock schema", config.ConnConfig.Database)
	}
	margin := o.Session / 3
	locks, err := pglock.New(ctx, pool, o.Registry(margin)...)
	if err != nil {
		pool.Close()
		return nil, err
	}
	rows := rows{pool}
	return &command.Locks{
		Registry:   locks,
		Margin:     func() time.Duration { return margin },
		Desk:       command.RegistryDesk{Registry: inspect.Registry{Locks: locks, Paths: rows.paths}, Find: rows.find},
		Disconnect: func() error { pool.Close(); return nil },
	}, nil
}

// connect returns a pool after a server has answered. The result present says whether the database has the schema of pglock.
func connect(ctx context.Context, config *pgxpool.Config) (_ *pgxpool.Pool, present bool, _ error) {
	pool, err := pgxpool.NewWithConfig(context.WithoutCancel(ctx), config)
	if err != nil {
		return nil, false, err
	}
	err = command.Answer(ctx, refused, func() error {
		return pool.QueryRow(ctx, "SELECT to_regnamespace('tierlock') IS NOT NULL").Scan(&present)
	})
	if err != nil {
		pool.Close()
		return nil, false, err
	}
	return pool, present, nil
}

// The function refused reports whether a server has refused permanently. The refusal is not permanent if the server is starting or shutting
// down, or has no free connection.
func refused(err error) bool {
	answer := (*pgconn.PgError)(nil)
	if !errors.As(err, &answer) {
		return false
	}
	switch answer.Code[:min(2, len(answer.Code))] {
	case "08", "40", "53", "55", "57", "58", "XX":
		return false
	}
	return true
}

// unreachable reports whether no server is available for this user.
func unreachable(err error) bool {
	answer := (*pgconn.PgError)(nil)
	if errors.As(err, &answer) {
		return answer.Code[:min(2, len(answer.Code))] == "28" // the password is wrong or missing
	}
	unsent := (*pgconn.ConnectError)(nil)
	return errors.As(err, &unsent)
}

package postgres

import (
	"context"
	"fmt"
	"io"

	"github.com/tierlock/tierlock/cmd/tierlock/internal/command"
	"github.com/tierlock/tierlock/pglock"
)

// The function tasks returns the subcommands for the schema.
func tasks() []command.Task {
	return []command.Task{{
		Name:  "migrate",
		About: "create or upgrade the schema that locks need in the database",
		Help: `Creates the schema tierlock in the database, or upgrades an older one in place, in one transaction. It
changes nothing if the schema is there in the version of this command, or in the next one. It may run
at any time, and several times at once. Programs of the version before keep their locks. It exits with
70 if the role may not, or if the database has a schema that this command cannot use.

  tierlock migrate

The role that it connects as then owns the schema, and an upgrade needs that role. Another role that is
to use locks needs

  GRANT USAGE ON SCHEMA tierlock TO locker;
  GRANT SELECT, INSERT, UPDATE, DELETE ON ALL TABLES IN SCHEMA tierlock TO locker;
  GRANT USAGE, UPDATE ON ALL SEQUENCES IN SCHEMA tierlock TO locker;
`,
		Do: migrate,
	}, {
		Name:  "schema",
		About: "print the SQL that creates the schema, to run it without migrate",
		Help: `Prints the SQL that creates the schema tierlock. Run it once, unchanged, in a transaction, under any
role that may create a schema. To print it, tierlock needs no server.

  tierlock schema | psql -1 -v ON_ERROR_STOP=1 app
`,
		Alone: true,
		Do: func(_ context.Context, _ *command.Address, w io.Writer) error {
			_, err := io.WriteString(w, pglock.Schema)
			return err
		},
	}}
}

func migrate(ctx context.Context, a *command.Address, w io.Writer) error {
	config, err := configOf(a)
	if err != nil {
		return err
	}
	pool, _, err := connect(ctx, config)
	if err != nil {
		return err
	}
	defer pool.Close()
	if err := pglock.Migrate(ctx, pool); err != nil {
		return err
	}
	_, err = fmt.Fprintf(w, "database %s has the schema tierlock\n", config.ConnConfig.Database)
	return err
}

package main

const environment = `  TIERLOCK_POSTGRES  the database, if there is no -postgres
  PGHOST, PGUSER, …  what neither says, as for psql; passwords best in PGPASSFILE,
                     since everybody can see a command line
`

// notes are what help says of PostgreSQL.
var notes = map[string]string{
	"run": `the database needs the schema of package pglock, once: tierlock-postgres migrate makes it, or
the SQL of tierlock-postgres schema.`,
	"ls": `a PATH need not begin with a slash, and / stands for all locks and semaphores of the database that
somebody has or wants. It is one query for the paths, and two for the queues of each.`,
	"who": `the locks are those in tables, of pglock.New. SEQ is the place in the queue.
"grace-period" is who gets the lock once a server that was promoted grants any.`,
	"doctor": `it also looks at the privileges, at whether the server is a standby, and at how long the
holder's session would last without its process.`,
}

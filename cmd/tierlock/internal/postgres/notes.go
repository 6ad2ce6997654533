package postgres

const about = `    A URL as for psql, also postgresql://. PGHOST, PGUSER, PGPASSWORD, PGPASSFILE, PGSSLMODE and the others of
    psql have what it does not say, and postgres:// leaves all to them. Credentials are user:password.
`

// notes are what help says of PostgreSQL.
var notes = map[string]string{
	"run": `the database needs the schema of package pglock, once: tierlock migrate makes it, or
the SQL of tierlock schema.`,
	"ls": `a PATH need not begin with a slash, and / stands for all locks and semaphores of the database that
somebody has or wants. It is one query for the paths, and two for the queues of each.`,
	"who": `the locks are those in tables, of pglock.New. SEQ is the place in the queue.
"grace-period" is who gets the lock once a server that was promoted grants any.`,
	"doctor": `it also looks at the privileges, at whether the server is a standby, and at how long the
holder's session would last without its process.`,
}

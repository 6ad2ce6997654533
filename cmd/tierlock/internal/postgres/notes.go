package postgres

const about = `    A URL as for psql, also with postgresql://. Parts that the URL leaves out come from psql's variables, such as
    PGHOST, PGUSER, PGPASSWORD, PGPASSFILE and PGSSLMODE; postgres:// alone takes all parts from them.
    Credentials are user:password.
`

// The map notes has the parts of the help about PostgreSQL.
var notes = map[string]string{
	"run": `the database needs the schema of package pglock once: run tierlock migrate, or the SQL
that tierlock schema prints.`,
	"ls": `a PATH need not begin with a slash, and / stands for all locks and semaphores in use in the
database. It takes one query for the paths, and two for the queues of each.`,
	"who": `it shows the locks of pglock.New, not advisory locks. SEQ is the place in the queue.
"grace-period" marks the process that gets the lock when the grace period of the server ends.`,
	"doctor": `it also checks privileges, whether the server is a standby, and when the holder's session ends
if its process has died.`,
}

// Tierlock-postgres runs a command under a distributed lock on PostgreSQL, and shows operators who holds
// locks and who waits for them.
//
//	go install github.com/tierlock/tierlock/pglock/cmd/tierlock-postgres@latest
//	tierlock-postgres help
package main

import (
	"os"

	"github.com/tierlock/tierlock/internal/command"
)

func main() {
	os.Exit(command.Main(new(postgres).store(), os.Args[1:], os.Stdout, os.Stderr))
}

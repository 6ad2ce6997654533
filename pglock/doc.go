// Package pglock is the lock of package tier on PostgreSQL: each process queues with one row,
// however many of its goroutines wait.
package pglock

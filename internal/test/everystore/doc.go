// Package everystore has tests that need every store (writes under a lock, foreign texts, round trips, benchmarks, migrations with
// goose), and tests with locks of other libraries. It is a module of its own, so that no adapter requires the client of a store, and no
// store the lock of another library.
package everystore

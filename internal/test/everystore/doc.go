// Package everystore contains tests that need every store: writes under a lock, foreign texts, round trips, benchmarks, and migrations with
// goose. It also contains tests with locks of other libraries. The package is a module of its own. Therefore no adapter depends on the
// client of another store, and no adapter depends on another lock library.
package everystore

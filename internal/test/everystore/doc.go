// Package everystore has the tests of what needs every store: writes under a lock, foreign texts, round trips, benchmarks, and migrations
// with goose; and of locks of other libraries beside ours. It is a module of its own, so that no adapter requires the client of a store,
// and no store another library's lock.
package everystore

// Package everystore has the tests of what stands on package tier, on every store: elections, and the
// adapters. It is a module of its own, so that no adapter requires the client of a store.
package everystore

// Package need ends a test without what it needs.
package need

import "testing"

// OK ends the test unless err is nil.
func OK(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// Get is for a call: need.Get(f())(t) is the value that f returns, or ends the test with its error.
func Get[V any](value V, err error) func(testing.TB) V {
	return func(t testing.TB) V {
		t.Helper()
		OK(t, err)
		return value
	}
}

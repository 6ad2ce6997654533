package second

import "context"

// Do runs f as a task, and returns the results of f. Most calls of a store's client cannot be cancelled. If ctx ends first, f therefore
// continues to run, and Do returns the error that the function left makes from the cause of ctx. If spawn refuses the task, Do returns
// [ErrClosed].
func Do[T any](ctx context.Context, spawn func(func()) bool, f func() (T, error), left func(cause error) error) (T, error) {
	type result struct {
		value T
		err   error
	}
	results := make(chan result, 1)
	if !spawn(func() {
		value, err := f()
		results <- result{value, err}
	}) {
		return *new(T), ErrClosed
	}
	select {
	case r := <-results:
		return r.value, r.err
	case <-ctx.Done():
		return *new(T), left(context.Cause(ctx))
	}
}

package main

import (
	"context"
	"errors"
	"time"

	"github.com/tierlock/tierlock/internal/inspect"
	"github.com/tierlock/tierlock/internal/zkinspect"
	"github.com/tierlock/tierlock/zklock"
)

// A desk looks at the locks of all libraries, and takes them away.
type desk struct{ zkinspect.Reader }

func (d desk) Revoke(ctx context.Context, path string) ([]inspect.Contender, error) {
	lock, err := d.Client.Lock(path)
	if err != nil {
		return nil, err
	}
	holders, err := lock.Revoke(ctx)
	return zkinspect.Describe(holders, time.Now()), err
}

func (d desk) Break(ctx context.Context, path string, token int64) (*inspect.Contender, error) {
	lock, err := d.Client.Lock(path)
	if err != nil {
		return nil, err
	}
	former, err := lock.Break(ctx, token)
	switch {
	case errors.Is(err, zklock.ErrNotHolder):
		return nil, nil
	case err != nil:
		return nil, err
	}
	return &zkinspect.Describe([]zklock.Contender{former}, time.Now())[0], nil
}

func (d desk) Examine(ctx context.Context, path string) (*inspect.Report, error) {
	lock, err := d.Client.Lock(path)
	if err != nil {
		return nil, err
	}
	return zkinspect.Examine(ctx, d.Client, lock)
}

//go:build !linux

package relay

import "time"

// alarm waits until a given time with a timer of package time.
type alarm struct{}

func newAlarm() (*alarm, error) { return &alarm{}, nil }

func (*alarm) wait(until time.Time) error {
	time.Sleep(time.Until(until))
	return nil
}

func (*alarm) Close() error { return nil }

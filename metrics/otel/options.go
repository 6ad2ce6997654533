package tierotel

import (
	"errors"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/metric"
	"go.opentelemetry.io/otel/trace"

	"github.com/tierlock/tierlock/internal/patterns"
)

// An Option is for [New].
type Option func(*config) error

type config struct {
	tracers  trace.TracerProvider
	meters   metric.MeterProvider
	patterns patterns.Patterns
}

// WithTracerProvider sets where spans go; the default is the global provider.
func WithTracerProvider(p trace.TracerProvider) Option {
	return func(c *config) error {
		if p == nil {
			return errors.New("tierotel: nil tracer provider")
		}
		c.tracers = p
		return nil
	}
}

// WithMeterProvider sets where metrics go; the default is the global provider.
func WithMeterProvider(p metric.MeterProvider) Option {
	return func(c *config) error {
		if p == nil {
			return errors.New("tierotel: nil meter provider")
		}
		c.meters = p
		return nil
	}
}

// WithPaths sets the patterns, as [path.Match] takes them, by which metrics tell locks apart; the
// first that matches counts. All others are told as "other".
func WithPaths(paths ...string) Option {
	return func(c *config) (err error) {
		c.patterns, err = patterns.New(paths...)
		return err
	}
}

func (c *config) pattern(path string) attribute.KeyValue {
	return label(c.patterns.Of(path))
}

func label(pattern string) attribute.KeyValue { return attribute.String("tierlock.path", pattern) }

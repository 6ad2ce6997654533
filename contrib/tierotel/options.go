package tierotel

import (
	"errors"
	"fmt"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/metric"
	"go.opentelemetry.io/otel/trace"

	"github.com/tierlock/tierlock/contrib/internal/patterns"
)

// An Option is an option of [New].
type Option interface{ apply(*config) }

type option func(*config)

func (o option) apply(to *config) { o(to) }

type config struct {
	tracers  trace.TracerProvider
	meters   metric.MeterProvider
	patterns patterns.Patterns
}

// WithTracerProvider sets the provider of spans; the default is the global provider.
func WithTracerProvider(p trace.TracerProvider) Option {
	return option(func(c *config) { c.tracers = p })
}

// WithMeterProvider sets the provider of metrics; the default is the global provider.
func WithMeterProvider(p metric.MeterProvider) Option {
	return option(func(c *config) { c.meters = p })
}

// WithPaths sets the patterns, in the syntax of [path.Match], that group locks in metrics. The first pattern that matches a path applies.
// Paths without a match are grouped as "other".
func WithPaths(paths ...string) Option {
	return option(func(c *config) { c.patterns = paths })
}

func (c *config) check() error {
	switch err := c.patterns.Check(); {
	case c.tracers == nil:
		return errors.New("tierotel: nil tracer provider")
	case c.meters == nil:
		return errors.New("tierotel: nil meter provider")
	case err != nil:
		return fmt.Errorf("tierotel: %w", err)
	}
	return nil
}

func (c *config) pattern(path string) attribute.KeyValue {
	return label(c.patterns.Of(path))
}

func label(pattern string) attribute.KeyValue { return attribute.String("tierlock.path", pattern) }

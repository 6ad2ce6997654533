package link

import (
	"testing"

	"github.com/tierlock/tierlock/internal/wire"
)

// Results of every kind are passed over by their whole length, or what is malformed behind them would not be found.
func TestMalformedResultIsFoundBehindOthers(t *testing.T) {
	results := func(fill func(*wire.Encoder), op int32) []byte {
		var e wire.Encoder
		e.MultiHeader(wire.MultiHeader{Op: op})
		fill(&e)
		return e
	}
	whole := map[string][]byte{
		"error":  results(func(e *wire.Encoder) { e.Int32(wire.CodeNoNode) }, wire.OpError),
		"create": results(func(e *wire.Encoder) { e.String("/x") }, wire.OpCreate),
		"set":    results(func(e *wire.Encoder) { *e = append(*e, make([]byte, wire.StatSize)...) }, wire.OpSetData),
		"check":  results(func(*wire.Encoder) {}, wire.OpCheck),
		"delete": results(func(*wire.Encoder) {}, wire.OpDelete),
	}
	truncated := results(func(e *wire.Encoder) { e.Int32(100) }, wire.OpCreate)
	for name, result := range whole {
		d := wire.Decoder{Rest: append(append([]byte(nil), result...), truncated...)}
		if passResults(&d); !d.Bad {
			t.Errorf("%s: the result behind it is taken for a good one", name)
		}
		var end wire.Encoder
		end.MultiHeader(wire.MultiHeader{Op: -1, Done: true})
		d = wire.Decoder{Rest: append(append([]byte(nil), result...), end...)}
		if passResults(&d); d.Bad || len(d.Rest) > 0 {
			t.Errorf("%s: bad %t, %d bytes are left", name, d.Bad, len(d.Rest))
		}
	}
}

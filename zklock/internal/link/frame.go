package link

import (
	"fmt"

	"github.com/tierlock/tierlock/internal/wire"
)

// A library that trusts a count allocates what it says, reads beyond the frame, or
// panics in a goroutine of its own. So each body is read here first, the way the library
// is going to read it (structs.go). What follows it is ignored by both.

// checkReply looks at the body of a successful reply to a request of type op.
func checkReply(op int32, body wire.Decoder) error {
	size := len(body.Rest)
	switch d := &body; op {
	case wire.OpCreate, wire.OpCreateContainer, wire.OpCreateTTL, wire.OpSync:
		passString(d)
	case wire.OpExists, wire.OpSetData, wire.OpSetACL:
		d.Take(wire.StatSize)
	case wire.OpGetData, wire.OpReconfig:
		d.Buffer()
		d.Take(wire.StatSize)
	case wire.OpGetChildren2:
		for range count(d) {
			passString(d)
		}
		d.Take(wire.StatSize)
	case wire.OpGetACL:
		for range count(d) {
			d.Int32() // permissions
			passString(d)
			passString(d)
		}
		d.Take(wire.StatSize)
	case wire.OpMulti:
		passResults(d)
	}
	if body.Bad {
		return fmt.Errorf("malformed reply to %s, of %d bytes", wire.OpName(op), size)
	}
	return nil
}

// checkEvent looks at the body of an event.
func checkEvent(body wire.Decoder) error {
	size := len(body.Rest)
	body.Take(4 + 4) // type, state
	if passString(&body); body.Bad {
		return fmt.Errorf("malformed event, of %d bytes", size)
	}
	return nil
}

// passResults reads as far as the library does, which gives up at a result that it does
// not know.
func passResults(d *wire.Decoder) {
	for !d.Bad {
		h := d.MultiHeader()
		switch {
		case h.Done:
			return
		case h.Op == wire.OpError:
			d.Int32()
		case h.Op == wire.OpCreate:
			passString(d)
		case h.Op == wire.OpSetData:
			d.Take(wire.StatSize)
		case h.Op == wire.OpCheck, h.Op == wire.OpDelete:
		default:
			return
		}
	}
}

// passString reads a string, which is never null.
func passString(d *wire.Decoder) { d.Take(int(d.Int32())) }

// count reads the length of a vector of strings or more, which is never null.
func count(d *wire.Decoder) int {
	n := int(d.Int32())
	if n < 0 || n > len(d.Rest)/4 {
		d.Bad = true
		return 0
	}
	return n
}

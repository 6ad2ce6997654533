package fate_test

import (
	"testing"

	"github.com/tierlock/tierlock/internal/fate"
	"github.com/tierlock/tierlock/internal/test/need"
	"github.com/tierlock/tierlock/internal/wire"
)

func TestWhatARequestIsAbout(t *testing.T) {
	var plain, multi, watches wire.Encoder
	plain.String("/x")
	multi.MultiHeader(wire.MultiHeader{Op: wire.OpDelete, Code: -1})
	multi.String("/x")
	for op, want := range map[int32]string{wire.OpDelete: "/x", wire.OpGetACL: "/x", wire.OpPing: "", wire.OpSetAuth: "",
		wire.OpClose: ""} {
		got, first := fate.About(op, wire.Decoder{Rest: plain})
		need.Equal(t, wire.OpName(op), [2]string{got, first}, [2]string{want, ""})
	}
	watches.SetWatches(wire.SetWatches{Data: []string{"/y"}, Children: []string{"/x"}})
	for want, body := range map[string]wire.Encoder{"/y": watches, "": make(wire.Encoder, 8+3*4)} {
		got, first := fate.About(wire.OpSetWatches, wire.Decoder{Rest: body})
		need.Equal(t, wire.OpName(wire.OpSetWatches), [2]string{got, first}, [2]string{want, ""})
	}
	for _, op := range []int32{wire.OpMulti, wire.OpMultiRead} {
		got, first := fate.About(op, wire.Decoder{Rest: multi})
		need.Equal(t, wire.OpName(op), [2]string{got, first}, [2]string{"/x", "delete"})
	}
}

package fate_test

import (
	"testing"

	"github.com/tierlock/tierlock/internal/fate"
	"github.com/tierlock/tierlock/internal/need"
	"github.com/tierlock/tierlock/internal/wire"
)

func TestWhatARequestIsAbout(t *testing.T) {
	var plain, multi wire.Encoder
	plain.String("/x")
	multi.MultiHeader(wire.MultiHeader{Op: wire.OpDelete, Code: -1})
	multi.String("/x")
	for op, want := range map[int32]string{wire.OpDelete: "/x", wire.OpGetACL: "/x", wire.OpPing: "", wire.OpSetWatches: "",
		wire.OpSetAuth: "", wire.OpClose: ""} {
		got, first := fate.About(op, wire.Decoder{Rest: plain})
		need.Equal(t, wire.OpName(op), [2]string{got, first}, [2]string{want, ""})
	}
	for _, op := range []int32{wire.OpMulti, wire.OpMultiRead} {
		got, first := fate.About(op, wire.Decoder{Rest: multi})
		need.Equal(t, wire.OpName(op), [2]string{got, first}, [2]string{"/x", "delete"})
	}
}

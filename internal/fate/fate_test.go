package fate_test

import (
	"testing"

	"github.com/tierlock/tierlock/internal/fate"
	"github.com/tierlock/tierlock/internal/wire"
)

func TestWhatARequestIsAbout(t *testing.T) {
	var plain, multi wire.Encoder
	plain.String("/x")
	multi.MultiHeader(wire.MultiHeader{Op: wire.OpDelete, Code: -1})
	multi.String("/x")
	for op, want := range map[int32]string{wire.OpDelete: "/x", wire.OpGetACL: "/x", wire.OpPing: "", wire.OpSetWatches: "",
		wire.OpSetAuth: "", wire.OpClose: ""} {
		if got, first := fate.About(op, wire.Decoder{Rest: plain}); got != want || first != "" {
			t.Errorf("%s: %q, first of them %q, want %q", wire.OpName(op), got, first, want)
		}
	}
	for _, op := range []int32{wire.OpMulti, wire.OpMultiRead} {
		if got, first := fate.About(op, wire.Decoder{Rest: multi}); got != "/x" || first != "delete" {
			t.Errorf("%s: %q, first of them %q", wire.OpName(op), got, first)
		}
	}
}

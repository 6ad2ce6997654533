package second

import (
	"testing"
	"time"

	"github.com/tierlock/tierlock/internal/test/need"
)

// The texts of values sort by token and then by turn, because package etcdlock lets etcd compare them.
func TestTextsOfValuesAreInTheOrderOfTokenAndTurn(t *testing.T) {
	at := time.UnixMilli(1)
	last := ""
	for _, v := range []struct{ token, turn int64 }{{1, 1}, {1, 2}, {1, 10}, {2, 1}, {10, 1}, {1 << 62, 1}, {1 << 62, 1 << 30}} {
		text := EncodeValue(v.token, v.turn, at.Add(-time.Duration(len(last))), []byte("x"))
		need.That(t, text+" is not behind "+last, text > last)
		last = text
	}
}

func TestValuesAreReadAsTheyWereWritten(t *testing.T) {
	at := time.UnixMilli(1234)
	for _, data := range [][]byte{nil, {}, []byte("\n"), []byte("tierlock 1 2 3\nx")} {
		v, turn, err := DecodeValue([]byte(EncodeValue(7, 8, at, data)))
		need.OK(t, err)
		need.Equal(t, "token", v.Token, 7)
		need.Equal(t, "turn", turn, 8)
		need.That(t, "saved", v.Saved.Equal(at))
		need.That(t, "there is a value", (v.Data == nil) == (data == nil))
		need.Equal(t, "data", string(v.Data), string(data))
	}
	for _, text := range []string{"", "\n", "x", "tierlock x", "__REVOKE__"} {
		_, _, err := DecodeValue([]byte(text))
		need.WantErr(t, text, err, errNoHead)
	}
}

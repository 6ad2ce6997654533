package second

import (
	"bytes"
	"errors"
	"fmt"
	"time"
)

// A Value is what the holders of a lock keep beside it. It outlives them.
type Value struct {
	Data  []byte
	Token int64     // of the holder that saved it
	Saved time.Time // by the clock of the store, or of the writer where the store has none
}

// ErrNoValue means that nothing is saved beside the lock.
var ErrNoValue = errors.New("no value is saved beside the lock")

// errNoHead says that another program has written where a value is.
var errNoHead = errors.New("the value was not saved by a holder of the lock")

// EncodeValue is a value for a store that keeps bytes: a line about its writer, and the data. The turn orders the writes of one holder.
// Texts of two values are in the order of token and turn. If data is nil, the line stands alone.
func EncodeValue(token, turn int64, saved time.Time, data []byte) string {
	head := fmt.Sprintf("tierlock %019d %010d %d", token, turn, saved.UnixMilli())
	if data == nil {
		return head
	}
	return head + "\n" + string(data)
}

// DecodeValue is the value in such a text, with its turn. Its data is nil if there is only the line.
func DecodeValue(text []byte) (v Value, turn int64, err error) {
	head, data, there := bytes.Cut(text, []byte("\n"))
	var saved int64
	if _, err := fmt.Sscanf(string(head), "tierlock %d %d %d", &v.Token, &turn, &saved); err != nil {
		return Value{}, 0, errNoHead
	}
	if v.Saved = time.UnixMilli(saved); there {
		v.Data = append([]byte{}, data...)
	}
	return v, turn, nil
}

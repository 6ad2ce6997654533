package second

import (
	"bytes"
	"errors"
	"fmt"
	"time"
)

// A Value is data that a holder has saved beside its lock. It stays there after the release of the lock.
type Value struct {
	Data  []byte
	Token int64     // the token of the holder that saved it
	Saved time.Time // by the clock of the store; if the store has no clock, by that of the holder
}

// ErrNoValue means that nothing is saved beside the lock.
var ErrNoValue = errors.New("no value is saved beside the lock")

// errNoHead means that another program has written to the place of a value.
var errNoHead = errors.New("the value was not saved by a holder of the lock")

// EncodeValue returns a text for stores that save a value as bytes. The text is a line about the writer, followed by the data. If data is
// nil, it is only the line. The turn numbers the writes of one holder. A later write has the greater text, since texts compare by token
// and then by turn.
func EncodeValue(token, turn int64, saved time.Time, data []byte) string {
	head := fmt.Sprintf("tierlock %019d %010d %d", token, turn, saved.UnixMilli())
	if data == nil {
		return head
	}
	return head + "\n" + string(data)
}

// DecodeValue returns the value and the turn in a text of [EncodeValue]. The data is nil if the text is only the line about the writer.
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

package wire

import "encoding/binary"

// An Encoder holds the bytes that were written so far.
type Encoder []byte

func (e *Encoder) Bool(v bool) {
	if v {
		*e = append(*e, 1)
	} else {
		*e = append(*e, 0)
	}
}

func (e *Encoder) Int32(v int32) { *e = binary.BigEndian.AppendUint32(*e, uint32(v)) }
func (e *Encoder) Int64(v int64) { *e = binary.BigEndian.AppendUint64(*e, uint64(v)) }

// Buffer writes a buffer. It writes nil as the null buffer.
func (e *Encoder) Buffer(b []byte) {
	if b == nil {
		e.Int32(-1)
		return
	}
	e.Int32(int32(len(b)))
	*e = append(*e, b...)
}

func (e *Encoder) String(s string) {
	e.Int32(int32(len(s)))
	*e = append(*e, s...)
}

func (e *Encoder) Strings(list []string) {
	e.Int32(int32(len(list)))
	for _, s := range list {
		e.String(s)
	}
}

package wire

import "encoding/binary"

// A Decoder reads ZooKeeper's serialization (jute): big-endian integers, and strings, buffers and vectors after a 32-bit count. A read past
// the end returns a zero value and sets Bad. After that, nothing is left to read.
type Decoder struct {
	Rest []byte // the bytes that have not been read
	Bad  bool
}

// Take reads n bytes. The result shares the memory of the decoder.
func (d *Decoder) Take(n int) []byte {
	if n < 0 || n > len(d.Rest) {
		d.Rest, d.Bad = nil, true
		return nil
	}
	b := d.Rest[:n:n]
	d.Rest = d.Rest[n:]
	return b
}

func (d *Decoder) Bool() bool {
	b := d.Take(1)
	return b != nil && b[0] != 0
}

func (d *Decoder) Int32() int32 {
	if b := d.Take(4); b != nil {
		return int32(binary.BigEndian.Uint32(b))
	}
	return 0
}

func (d *Decoder) Int64() int64 {
	if b := d.Take(8); b != nil {
		return int64(binary.BigEndian.Uint64(b))
	}
	return 0
}

// Buffer reads a buffer. For the null buffer, whose length is -1, it returns nil.
func (d *Decoder) Buffer() []byte {
	n := d.Int32()
	if n == -1 {
		return nil
	}
	return d.Take(int(n))
}

func (d *Decoder) String() string { return string(d.Buffer()) }

// Count returns the length of a vector whose elements have at least size bytes each. As in Java, a negative length means that there are no
// elements.
func (d *Decoder) Count(size int) int {
	n := int(d.Int32())
	if n > len(d.Rest)/size {
		d.Rest, d.Bad = nil, true
		return 0
	}
	return max(n, 0)
}

func (d *Decoder) Strings() []string {
	list := make([]string, d.Count(4))
	for i := range list {
		list[i] = d.String()
	}
	return list
}

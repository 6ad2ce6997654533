package zktest

import "encoding/binary"

// A decoder reads ZooKeeper's serialization (jute): big-endian integers, and strings, buffers and vectors behind a
// 32-bit count. Reading past the end yields zero values and sets bad.
type decoder struct {
	buf []byte
	bad bool
}

func (d *decoder) take(n int) []byte {
	if n < 0 || n > len(d.buf) {
		d.buf, d.bad = nil, true
		return nil
	}
	b := d.buf[:n:n]
	d.buf = d.buf[n:]
	return b
}

func (d *decoder) bool() bool {
	b := d.take(1)
	return b != nil && b[0] != 0
}

func (d *decoder) int32() int32 {
	if b := d.take(4); b != nil {
		return int32(binary.BigEndian.Uint32(b))
	}
	return 0
}

func (d *decoder) int64() int64 {
	if b := d.take(8); b != nil {
		return int64(binary.BigEndian.Uint64(b))
	}
	return 0
}

// buffer returns nil for the null buffer, whose length is -1.
func (d *decoder) buffer() []byte {
	n := d.int32()
	if n == -1 || d.bad {
		return nil
	}
	return d.take(int(n))
}

func (d *decoder) string() string { return string(d.buffer()) }

// count is the length of a vector whose elements take at least size bytes each.
func (d *decoder) count(size int) int {
	n := int(d.int32())
	if n > len(d.buf)/size {
		d.buf, d.bad = nil, true
		return 0
	}
	return max(n, 0)
}

func (d *decoder) strings() []string {
	list := make([]string, d.count(4))
	for i := range list {
		list[i] = d.string()
	}
	return list
}

func (d *decoder) acl() []aclEntry {
	list := make([]aclEntry, d.count(12))
	for i := range list {
		list[i] = aclEntry{perms: d.int32(), id: identity{scheme: d.string(), id: d.string()}}
	}
	return list
}

// An encoder is the bytes written so far.
type encoder []byte

func (e *encoder) bool(v bool) {
	if v {
		*e = append(*e, 1)
	} else {
		*e = append(*e, 0)
	}
}

func (e *encoder) int32(v int32) { *e = binary.BigEndian.AppendUint32(*e, uint32(v)) }
func (e *encoder) int64(v int64) { *e = binary.BigEndian.AppendUint64(*e, uint64(v)) }

func (e *encoder) buffer(b []byte) {
	if b == nil {
		e.int32(-1)
		return
	}
	e.int32(int32(len(b)))
	*e = append(*e, b...)
}

func (e *encoder) string(s string) {
	e.int32(int32(len(s)))
	*e = append(*e, s...)
}

func (e *encoder) strings(list []string) {
	e.int32(int32(len(list)))
	for _, s := range list {
		e.string(s)
	}
}

func (e *encoder) acl(list []aclEntry) {
	e.int32(int32(len(list)))
	for _, a := range list {
		e.int32(a.perms)
		e.string(a.id.scheme)
		e.string(a.id.id)
	}
}

func (e *encoder) stat(s Stat) {
	e.int64(s.Czxid)
	e.int64(s.Mzxid)
	e.int64(s.Ctime)
	e.int64(s.Mtime)
	e.int32(s.Version)
	e.int32(s.Cversion)
	e.int32(s.Aversion)
	e.int64(s.EphemeralOwner)
	e.int32(s.DataLength)
	e.int32(s.NumChildren)
	e.int64(s.Pzxid)
}

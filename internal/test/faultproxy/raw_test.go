package faultproxy_test

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"testing"
	"time"

	"github.com/tierlock/tierlock/internal/test/need"
)

// A raw is a client that can write any bytes.
type raw struct {
	*testing.T
	conn net.Conn
}

func dialRaw(b *bench) raw {
	b.Helper()
	conn := need.Get(net.Dial("tcp", b.proxy.Addr()))(b)
	b.Cleanup(func() { conn.Close() })
	conn.SetDeadline(time.Now().Add(patience))
	return raw{b.T, conn}
}

// handshake asks for a new session with a timeout of eight seconds.
var handshake = frame(0, 0, 0, 8000, 0, 0, 0)

func request(xid int32, op int32, path string) []byte {
	f := append(frame(xid, op, int32(len(path))), path...)
	f = append(f, 0) // no watch
	binary.BigEndian.PutUint32(f, uint32(len(f)-4))
	return f
}

func frame(fields ...int32) []byte {
	f := binary.BigEndian.AppendUint32(nil, uint32(4*len(fields)))
	for _, field := range fields {
		f = binary.BigEndian.AppendUint32(f, uint32(field))
	}
	return f
}

func (c raw) write(b []byte) {
	c.Helper()
	need.Get(c.conn.Write(b))(c)
}

func (c raw) read() []byte {
	c.Helper()
	var length [4]byte
	need.Get(io.ReadFull(c.conn, length[:]))(c)
	body := make([]byte, binary.BigEndian.Uint32(length[:]))
	need.Get(io.ReadFull(c.conn, body))(c)
	return body
}

// The method silent checks that nothing arrives for a moment.
func (c raw) silent() {
	c.Helper()
	c.conn.SetReadDeadline(time.Now().Add(30 * time.Millisecond))
	n, err := c.conn.Read(make([]byte, 1))
	need.That(c, fmt.Sprintf("read %d bytes, %v; want silence", n, err), isTimeout(err))
	c.conn.SetReadDeadline(time.Now().Add(patience))
}

// The method ends checks that the connection ends.
func (c raw) ends() {
	c.Helper()
	n, err := c.conn.Read(make([]byte, 1))
	need.That(c, fmt.Sprintf("read %d bytes, %v; want the end of the connection", n, err), err != nil && !isTimeout(err))
}

func isTimeout(err error) bool { return errors.Is(err, os.ErrDeadlineExceeded) }

func (c raw) shake() {
	c.Helper()
	c.write(handshake)
	c.read()
}

// The method reply returns the xid of the next reply.
func (c raw) reply() int32 {
	c.Helper()
	return int32(binary.BigEndian.Uint32(c.read()))
}

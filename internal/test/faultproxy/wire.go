package faultproxy

import "github.com/tierlock/tierlock/internal/wire"

const maxFrame = 32 << 20 // no honest frame is longer

// harmless is a request that takes the place of another one: does the root exist?
func harmless(xid int32) []byte {
	var e wire.Encoder
	e.RequestHeader(wire.RequestHeader{Xid: xid, Op: wire.OpExists})
	e.String("/")
	e.Bool(false) // no watch
	return wire.Frame(e)
}

// failure is a reply with code in place of what its header says. It has no body.
func failure(h wire.ReplyHeader, code int32) []byte {
	h.Code = code
	var e wire.Encoder
	e.ReplyHeader(h)
	return wire.Frame(e)
}

// expiredAnswer says to a handshake that its session has expired.
func expiredAnswer(q wire.ConnectRequest) []byte {
	var e wire.Encoder
	e.ConnectReply(wire.ConnectReply{Password: make([]byte, wire.PasswordLen), ReadOnly: q.ReadOnly})
	return wire.Frame(e)
}

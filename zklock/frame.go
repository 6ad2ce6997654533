package zklock

import "github.com/tierlock/tierlock/internal/wire"

// withoutLastZxid returns a handshake that does not claim to have seen any transaction.
func withoutLastZxid(handshake []byte) []byte {
	d := wire.Decoder{Rest: wire.Body(handshake)}
	q := d.ConnectRequest()
	q.LastZxid = 0
	var e wire.Encoder
	e.ConnectRequest(q)
	return wire.Frame(e)
}

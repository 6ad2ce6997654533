package zktest

import "github.com/tierlock/tierlock/internal/wire"

func readACL(d *wire.Decoder) []aclEntry {
	list := make([]aclEntry, d.Count(12))
	for i := range list {
		list[i] = aclEntry{perms: d.Int32(), id: identity{scheme: d.String(), id: d.String()}}
	}
	return list
}

func writeACL(e *wire.Encoder, list []aclEntry) {
	e.Int32(int32(len(list)))
	for _, a := range list {
		e.Int32(a.perms)
		e.String(a.id.scheme)
		e.String(a.id.id)
	}
}

func writeStat(e *wire.Encoder, s Stat) {
	e.Int64(s.Czxid)
	e.Int64(s.Mzxid)
	e.Int64(s.Ctime)
	e.Int64(s.Mtime)
	e.Int32(s.Version)
	e.Int32(s.Cversion)
	e.Int32(s.Aversion)
	e.Int64(s.EphemeralOwner)
	e.Int32(s.DataLength)
	e.Int32(s.NumChildren)
	e.Int64(s.Pzxid)
}

// replyFrame is the frame of a reply; a failure has no body.
func replyFrame(xid int32, zxid int64, code Code, body []byte) []byte {
	var e wire.Encoder
	e.ReplyHeader(wire.ReplyHeader{Xid: xid, Zxid: zxid, Code: int32(code)})
	if code == codeOK {
		e = append(e, body...)
	}
	return wire.Frame(e)
}

func eventFrame(kind int32, path string) []byte {
	var e wire.Encoder
	e.Event(wire.Event{Type: kind, State: wire.StateSyncConnected, Path: path})
	return replyFrame(wire.XidEvent, -1, codeOK, e)
}

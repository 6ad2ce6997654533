package zktest

import "github.com/tierlock/tierlock/internal/wire"

// multi runs several operations as one: either all of them are done, or none.
func (t *txn) multi(d *wire.Decoder) (wire.Encoder, Code) {
	ops := readMulti(d)
	if d.Bad {
		return nil, CodeMarshallingError
	}
	results := make([]result, len(ops))
	for i, o := range ops {
		var code Code
		if results[i], code = t.do(o); code != codeOK {
			t.writes, t.changes, t.acls = nil, nil, nil
			return failedMulti(len(ops), i, code), codeOK
		}
	}
	var body wire.Encoder
	for i, o := range ops {
		kind := o.op
		if kind == OpCreateContainer {
			kind = OpCreate2
		}
		body.MultiHeader(wire.MultiHeader{Op: int32(kind)})
		body = append(body, writeResult(o.op, results[i])...)
	}
	body.MultiHeader(wire.LastOfMulti)
	return body, codeOK
}

func readMulti(d *wire.Decoder) (ops []operation) {
	for {
		h := d.MultiHeader()
		if h.Done || d.Bad {
			return ops
		}
		op := Op(h.Op)
		o := readOperation(op, d)
		switch {
		case op == OpSetACL:
			d.Bad = true // the one write a multi cannot hold
		case op == OpCreate, op == OpCreate2, op == OpCreateContainer:
			// In a multi, unlike outside, the flag decides what is made and which result is answered.
			o.op = OpCreate
			if o.flags == flagContainer {
				o.op = OpCreateContainer
			}
		}
		ops = append(ops, o)
	}
}

// failedMulti is the answer if the operation at index failed fails: none of those before it, whose code is zero, was
// done, and none after it was tried.
func failedMulti(n, failed int, cause Code) (body wire.Encoder) {
	for i := range n {
		code := codeOK
		switch {
		case i == failed:
			code = cause
		case i > failed:
			code = CodeRuntimeInconsistency
		}
		body.MultiHeader(wire.MultiHeader{Op: wire.OpError, Code: int32(code)})
		body.Int32(int32(code))
	}
	body.MultiHeader(wire.LastOfMulti)
	return body
}

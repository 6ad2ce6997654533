package zktest

// multi runs several operations as one: either all of them are done, or none.
func (t *txn) multi(d *decoder) (encoder, Code) {
	ops := readMulti(d)
	if d.bad {
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
	var body encoder
	for i, o := range ops {
		kind := o.op
		if kind == OpCreateContainer {
			kind = OpCreate2
		}
		body.multiHeader(kind, false, codeOK)
		body = append(body, writeResult(o.op, results[i])...)
	}
	body.multiHeader(-1, true, -1)
	return body, codeOK
}

func readMulti(d *decoder) (ops []operation) {
	for {
		op, done, _ := Op(d.int32()), d.bool(), d.int32()
		if done || d.bad {
			return ops
		}
		o := readOperation(op, d)
		switch {
		case op == OpSetACL:
			d.bad = true // the one write a multi cannot hold
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
func failedMulti(n, failed int, cause Code) (body encoder) {
	for i := range n {
		code := codeOK
		switch {
		case i == failed:
			code = cause
		case i > failed:
			code = CodeRuntimeInconsistency
		}
		body.multiHeader(opError, false, code)
		body.int32(int32(code))
	}
	body.multiHeader(-1, true, -1)
	return body
}

func (e *encoder) multiHeader(op Op, done bool, code Code) {
	e.int32(int32(op))
	e.bool(done)
	e.int32(int32(code))
}

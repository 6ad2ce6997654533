package oracle

import (
	"fmt"
	"slices"
)

// A Mark is a token and the process that has it.
type Mark struct {
	Token   int64
	Process int64
}

func (t Turn) mark() Mark { return Mark{t.Token, int64(t.Process)} }

// Tokens are the highest of those that came before, which is all that I8 depends on: a process may pass its token on from one of its owners
// to the next, and from process to process tokens grow. Who is alone has a higher one than all before. The others have a higher one than
// whoever was alone, and have no order among themselves; but no token is that of two processes.
type Tokens struct {
	Seen  Mark // of all
	Alone Mark // of those that were alone
}

// Stale reports whether a token is lower than one that it has to follow. Whoever is protected by tokens refuses it: a late owner has it,
// and its grant was right.
func (t Tokens) Stale(m Mark, alone bool) bool {
	last := t.Alone
	if alone {
		last = t.Seen
	}
	return m.Token != 0 && m.Token < last.Token
}

// Judge judges the token of a grant, or of a write that took effect. No token is no promise.
func (t Tokens) Judge(m Mark, alone bool) error {
	for _, before := range []Mark{t.Seen, t.Alone} {
		if m.Token != 0 && m.Token == before.Token && m.Process != before.Process {
			return fmt.Errorf("I8: process %d has token %d, which process %d has had", m.Process, m.Token, before.Process)
		}
	}
	if t.Stale(m, alone) {
		return fmt.Errorf("I8: process %d has token %d, after %d", m.Process, m.Token, t.Seen.Token)
	}
	return nil
}

// With notes a token.
func (t Tokens) With(m Mark, alone bool) Tokens {
	if m.Token > t.Seen.Token {
		t.Seen = m
	}
	if alone && m.Token > t.Alone.Token {
		t.Alone = m
	}
	return t
}

// Wrote judges a guarded write that takes effect once others have begun (I1): whoever a process passes its token on to begins when nothing
// that was written with it is under way. Whose token is stale the store refuses. Only the explorer feeds this: it sees in the store whose a
// write is, and elsewhere those of one token look the same.
func Wrote(m Mark, later []Mark) error {
	if slices.Contains(later, m) {
		return fmt.Errorf("I1: a write with token %d takes effect in the turn of another one that has it", m.Token)
	}
	return nil
}

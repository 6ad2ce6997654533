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

// Tokens are the highest tokens so far, which are all that I8 depends on: a process may pass its token on from one of its owners to the
// next, and from process to process tokens grow. An owner that is alone has a higher token than all before. Owners that share the lock
// have higher tokens than the last one that was alone, and no order among themselves. No two processes have the same token.
type Tokens struct {
	Seen  Mark // of all
	Alone Mark // of those that were alone
}

// Stale reports whether a token is lower than one that it must exceed. A resource that is protected by tokens refuses it: the token
// belongs to a late owner, whose grant was right.
func (t Tokens) Stale(m Mark, alone bool) bool {
	last := t.Alone
	if alone {
		last = t.Seen
	}
	return m.Token != 0 && m.Token < last.Token
}

// Judge checks the token of a grant, or of a write that took effect. Without a token nothing is promised.
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

// Wrote checks a guarded write that takes effect after later holds have begun (I1). A process passes its token on only when no write with
// that token is under way. The store refuses writes with a stale token. Only the explorer calls this, because only it sees to which hold
// a write belongs; elsewhere all holds with one token look the same.
func Wrote(m Mark, later []Mark) error {
	if slices.Contains(later, m) {
		return fmt.Errorf("I1: a write with token %d takes effect in the turn of another one that has it", m.Token)
	}
	return nil
}

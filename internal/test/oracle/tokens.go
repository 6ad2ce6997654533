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

// Tokens are the highest tokens so far, which is all that I8 depends on. Tokens grow from process to process. Within a process, a token may
// pass from one owner to the next. An owner that excludes all others has a higher token than every owner before it. Owners that share the
// lock have higher tokens than the last one that excluded others, in any order among themselves. No two processes have the same token.
type Tokens struct {
	Seen  Mark // the highest token of all owners
	Alone Mark // the highest token of the owners that were alone
}

// Stale reports whether a token is lower than one that it has to exceed. A resource that is protected by tokens refuses a stale token. The
// grant of that token broke no rule: its owner only acts too late.
func (t Tokens) Stale(m Mark, alone bool) bool {
	last := t.Alone
	if alone {
		last = t.Seen
	}
	return m.Token != 0 && m.Token < last.Token
}

// Judge checks the token of a grant, or of a write that took effect. If there is no token, there is nothing to check.
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

// With returns the tokens after a grant with the mark m.
func (t Tokens) With(m Mark, alone bool) Tokens {
	if m.Token > t.Seen.Token {
		t.Seen = m
	}
	if alone && m.Token > t.Alone.Token {
		t.Alone = m
	}
	return t
}

// Wrote checks a guarded write that takes effect after later holds have begun (I1). A process passes its token to its next owner only when
// no write with that token is under way, and the store refuses writes with a stale token. Only the explorer calls Wrote, because only it
// knows to which hold a write belongs. To other drivers, all holds with one token look the same.
func Wrote(m Mark, later []Mark) error {
	if slices.Contains(later, m) {
		return fmt.Errorf("I1: a write with token %d takes effect while another owner has the lock with this token", m.Token)
	}
	return nil
}

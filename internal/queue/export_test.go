package queue

// Left counts the contenders that still have any state in the tier or its session. A contender may count twice.
func (t *Tier) Left() (n int) {
	t.contenders.Range(func(any, any) bool { n++; return true })
	if x := t.status.Load().session; x != nil {
		n += len(x.Contenders())
	}
	return n
}

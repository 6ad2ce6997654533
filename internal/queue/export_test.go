package queue

// Left counts the contenders of which the process still keeps some state.
func (t *Tier) Left() (n int) {
	t.contenders.Range(func(any, any) bool { n++; return true })
	if x := t.status.Load().session; x != nil {
		n += len(x.Contenders())
	}
	return n
}

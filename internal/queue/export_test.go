package queue

// Left counts the contenders about which the tier and its session still store anything. A contender may count twice.
func (t *Tier) Left() (n int) {
	t.contenders.Range(func(any, any) bool { n++; return true })
	if x := t.status.Load().session; x != nil {
		n += len(x.Contenders())
	}
	return n
}

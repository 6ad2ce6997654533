package zklock

// A member is a node as its session sees it.
type member struct{ *Node }

func (m member) Lose(reason error) { m.lose(reason) }

func (m member) IsLost() bool { return m.life.Err() != nil }

func (m member) Wake() { m.wake.Set() }

func (m member) Prove() { m.prove() }

func (m member) Check() { m.check() }

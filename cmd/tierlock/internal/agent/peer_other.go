//go:build !linux

package agent

// identify finds out nothing: the process of a connection is known on Linux only.
func (p *peer) identify() {}

// groups returns no groups, because the user of a connection is unknown.
func (p *peer) groups() []uint32 { return nil }

// watch watches nothing. The end of the connection is the only sign that the client has ended.
func (p *peer) watch(func()) (unwatch func()) { return func() {} }

// exits cannot find out whether the process has ended.
func (p *peer) exits() bool { return false }

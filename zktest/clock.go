package zktest

import "time"

// sameClock panics unless its caller goes by the clock that made the server: a server and its clients have to be in the
// same synctest bubble, or all outside. Left alone, such a client would fail somewhere else, where nobody could tell why.
//
// There is no asking for a bubble, but time begins with the year 2000 in each. So two bubbles look alike.
func (s *Server) sameClock() {
	const apart = 365 * 24 * time.Hour // no bubble runs that long, and no clock is set by that much
	switch ago := time.Now().Round(0).Sub(s.made); {
	case ago < -apart:
		panic("zktest: the server was made outside of the synctest bubble in which it is dialed: call Start in the bubble, with its tb")
	case ago > apart:
		panic("zktest: the server was made in a synctest bubble and is dialed outside of it")
	}
}

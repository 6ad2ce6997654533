package zktest

import "testing"

// Start returns a running server with an empty tree, which closes at the end of the test, after what the test itself
// cleans up. There may be one cfg; without it the server has the zero [Config].
// Inside a synctest bubble, call it with the bubble's tb: the server then belongs to the bubble and ends in it. One that is made
// outside cannot be dialed inside.
func Start(tb testing.TB, cfg ...Config) *Server {
	tb.Helper()
	if len(cfg) > 1 {
		panic("zktest: Start takes one Config")
	}
	s := NewServer(append(cfg, Config{})[0])
	tb.Cleanup(s.Close)
	return s
}

package zklock

import (
	"fmt"

	"github.com/go-zookeeper/zk"
)

// Attach returns a client over a connection that belongs to somebody else, for programs
// that cannot leave the dialing to [Dial]. It knows less: a lock counts as lost when
// the session has changed or its node was deleted, but there is no lease, and so no
// word of it while the server cannot be reached. [Node.Lost] is late by up to a look at
// the node. The library's hazards with hung and with broken servers remain.
// [WithSessionTimeout] should repeat the timeout of conn; options about dialing are
// ignored.
//
// The library returns from a request only with the answer, so those that need an order go
// one after the other: an acquisition takes two round trips, and on a path that is missing
// one more and one for each node of the path.
//
// When conn is closed the client is closed with it, a tenth of a second later while somebody
// waits for a lock or holds one, else as soon as somebody does: the library tells nobody, and
// has to be asked. Nothing is sent for that.
//
// Close gives up the client, not the connection. Locks should be released before, or their
// nodes stay as long as the session of conn. Calls that a server does not answer end with
// the connection that they were made on, and so do their goroutines, which Close does not
// wait for.
func Attach(conn *zk.Conn, opts ...Option) (*Client, error) {
	o, err := newOptions(opts)
	if err != nil {
		return nil, fmt.Errorf("zklock: attach: %w", err)
	}
	c := newClient(o)
	c.link.Attach(conn)
	return c, nil
}

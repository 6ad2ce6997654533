package zklock

import (
	"errors"
	"fmt"

	"github.com/go-zookeeper/zk"
)

// containerData is the content of the containers that this package creates, and how it
// knows them again: a server does not tell its clients what is a container. Any other
// node may be somebody's, with data, an ACL or a quota, or be meant to stay.
const containerData = "tierlock: a container, which goes when it is empty"

// A parent is a container that this client has asked for.
type parent struct {
	path string
	made bool // by this client; else the answer was lost
}

// prune deletes a container unless it has children. It reports whether there is nothing
// more to do: it is gone, in use, or not for us to delete.
func (c *Client) prune(p parent) (finished bool) {
	err := c.deleteContainer(p)
	if errors.Is(err, zk.ErrNoAuth) {
		c.options.logger.Warn("zklock: cannot delete an empty parent; it stays", "path", p.path, "err", err)
	}
	return classify(err) != refused && classify(err) != uncertain
}

// deleteContainer deletes a container of this package unless it has children, which only
// the server can tell. Whoever was about to use it makes it anew.
//
// The delete is for a node whose data was never set. It cannot tell a plain node that
// took the container's place within the round trip; with the sync, no server that lags
// makes that any longer.
func (c *Client) deleteContainer(p parent) error {
	if _, err := c.container(p); err != nil {
		return err
	}
	return c.link.Conn.Delete(p.path, 0)
}

// container reads what the server knows of a container of this package, nothing if it
// is for others to use.
func (c *Client) container(p parent) (*zk.Stat, error) {
	if _, err := c.link.Conn.Sync(p.path); err != nil && classify(err) != missing {
		return nil, err
	}
	data, stat, err := c.link.Conn.Get(p.path)
	switch {
	case errors.Is(err, zk.ErrNoAuth) && p.made:
		return nil, nil
	case err != nil:
		return nil, err
	case string(data) != containerData || stat.Aversion != 0:
		return stat, fmt.Errorf("%w: no container of this package, or changed since", errNotOurs)
	}
	return stat, nil
}

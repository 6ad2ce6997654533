package zklock

import (
	"context"
	"fmt"
	"sync/atomic"

	"github.com/tierlock/tierlock/mutexbool"
)

// request is what Curator writes to a node to ask its owner for the lock.
const request = "__REVOKE__"

func asked(data []byte) bool { return string(data) == request }

// A revocation is whether somebody has asked for the lock of a node.
type revocation struct {
	watched atomic.Bool
	told    mutexbool.Bool
}

// revokedC returns a channel that is closed when somebody has asked for the lock.
func (n *Node) revokedC() <-chan struct{} {
	if !n.revoked.watched.Swap(true) {
		n.lock.client.link.Spawn(n.check)
	}
	return n.revoked.told.C()
}

// Revoke asks those that have the lock to give it up, and returns who they are: the one at the head of
// the queue, or if that reads, all that do so without anybody else in between. Whoever made them, it
// writes "__REVOKE__" to their nodes, as Curator's Revoker does, instead of what they say of
// themselves. This package tells the holder, Curator one that is revocable; other libraries take no
// notice. Nobody is made to do anything, and nobody need have the lock: then nobody is asked, and
// that is no error.
//
// It takes WRITE permission on the nodes; an error that wraps [zk.ErrNoAuth] says so. Some may have
// been asked if there is an error. Revoke waits for a server that cannot be reached until ctx is
// done; the error then wraps its cause.
func (l *Lock) Revoke(ctx context.Context) ([]Contender, error) {
	told, err := ask(ctx, l.client, l.revoke)
	if err != nil {
		return nil, fmt.Errorf("zklock: revoke %s: %w", l.path, err)
	}
	return told, nil
}

func (l *Lock) revoke(context.Context) (told []Contender, err error) {
	holders, err := l.holders()
	if err != nil {
		return nil, err
	}
	for _, h := range holders {
		_, err := l.client.link.Conn.Set(l.path+"/"+h.Node, []byte(request), -1)
		switch classify(err) {
		case done:
			told = append(told, h)
		case missing:
		default:
			return nil, lacking("WRITE", l.path+"/"+h.Node, err)
		}
	}
	if len(holders) > 0 && len(told) == 0 {
		return nil, errDeparted
	}
	return told, nil
}

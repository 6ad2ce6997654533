package zklock

import (
	"context"
	"encoding/json"
	"fmt"
	"sync/atomic"

	"github.com/tierlock/tierlock/mutexbool"
)

// request is what Curator writes to a node to ask its owner for the lock.
const request = "__REVOKE__"

// asked reports whether the content of a node is such a request, or has one in it.
func asked(data []byte) bool {
	d, _ := parseDescription(data)
	return d.Revoke || string(data) == request
}

// request is what to write to a node to ask its owner for the lock. A description of ours goes on saying who that is, with
// all that a later version has put there.
func (q Contender) request() []byte {
	if _, described := parseDescription(q.Data); !described || !ownName.MatchString(q.Node) {
		return []byte(request)
	}
	fields := make(map[string]json.RawMessage)
	json.Unmarshal(q.Data, &fields) // has just been read
	fields["revoke"] = json.RawMessage("true")
	return encode(fields)
}

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
// the queue, or if that reads, all that do so without anybody else in between. It adds the request to what
// our nodes say of themselves, and writes "__REVOKE__" to those that say nothing, or what [NodeData] has
// put there, or are of others, as Curator's Revoker does. This package tells the holder, Curator one that is revocable; other
// libraries take no notice. Nobody is made to do anything, and nobody need have the lock: then nobody is asked, and
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
		_, err := l.client.link.Conn.Set(l.path+"/"+h.Node, h.request(), -1)
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

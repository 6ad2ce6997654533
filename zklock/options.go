package zklock

import (
	"context"
	"crypto/tls"
	"net"

	"github.com/go-zookeeper/zk"

	"github.com/tierlock/tierlock/internal/zknode"
	"github.com/tierlock/tierlock/tier"
)

type option struct {
	tier.RegistryOption
	zknode.Option
}

// WithACL sets the ACL of lock nodes and of the parents that are created for them;
// default is all permissions for everybody. On the lock path a client needs CREATE and
// READ to queue, and DELETE to release a lock.
//
// With zk.AuthACL(zk.PermAll) all is permitted to those who present a password or a client
// certificate that this client presents too, and nothing to others. What is above the path and there
// already stays as it is: whoever may create and delete there can take the place of a path that is empty.
//
// On its own nodes it needs READ, without which the server refuses the checks that renew
// the lease: a client that has to wait gets an error wrapping [zk.ErrNoAuth], and one that
// is granted the lock at once loses it within a sixth of the session timeout.
func WithACL(acl []zk.ACL) tier.RegistryOption { return option{Option: zknode.WithACL(acl)} }

// WithAuth adds credentials, such as "digest" and "user:password". They are presented
// again on each reconnect.
func WithAuth(scheme string, credentials []byte) tier.RegistryOption {
	return option{Option: zknode.WithAuth(scheme, credentials)}
}

// WithTLS connects with TLS, as servers want on their secureClientPort. Each server has to show a
// certificate for its host as the connect string names it, or for the ServerName of cfg if there is
// one. Servers ask for a client certificate if they are not told otherwise; it goes into cfg, too, and
// is a credential of scheme "x509", for [WithACL]. A nil cfg is an empty one: the authorities of the
// system, and no client certificate.
//
// The handshake may take a sixth of the session timeout, at most 2 s, on each connection anew.
func WithTLS(cfg *tls.Config) tier.RegistryOption { return option{Option: zknode.WithTLS(cfg)} }

// WithDialContext replaces the dialing of TCP connections, as for a proxy or for tests. The address
// is host:port as in the connect string, so names are the dialer's to look up; ctx gives it a
// second. If dial goes on after that, the client tries the next server, and Close does not wait for
// dial either. TLS comes on top, if WithTLS is given.
func WithDialContext(dial func(ctx context.Context, network, address string) (net.Conn, error)) tier.RegistryOption {
	return option{Option: zknode.WithDialContext(dial)}
}

// WithKazoo makes locks that exclude kazoo's Lock, WriteLock, ReadLock and Election on the
// same path as they come; without it these need extra_lock_patterns=["lock-"]. Every
// process of this package that shares a path with such a kazoo needs the option: without
// it the process waits for kazoo, but kazoo does not wait for it. It excludes everybody
// whom a lock without it excludes, but kazoo still ignores those: Curator, zk.Lock, and
// processes without the option.
//
// A lock node is then two znodes with one token, created in one transaction and deleted
// in one: queueing, release and requeue cost one write each, as without. A node that waits,
// or is held for a sixth of the session timeout, costs one read more, in the same round
// trip. The lock is lost when either znode is deleted.
//
// kazoo's ReadLock works with this from kazoo 2.9.0 on. An older one also waits for nodes
// behind its own; if one of these is ours, each waits for the other until one gives up.
//
// kazoo expects its path to stay, so create it beforehand as a plain node: parents that
// this package creates are removed when they are empty. A plain node is never made anew when
// its sequence numbers come to their end, and a pair uses two of them.
func WithKazoo() tier.RegistryOption { return option{Option: zknode.WithKazoo()} }

// WithNodeData sets the content of the lock's znodes, at most 512 KiB, which Curator and kazoo show of a contender or leader. It should be
// UTF-8. By default the content is a JSON description of the process: its host, pid and label.
//
// With other content, [tier.Contender] shows neither host nor pid of this process.
func WithNodeData(data []byte) tier.RegistryOption { return option{Option: zknode.WithNodeData(data)} }

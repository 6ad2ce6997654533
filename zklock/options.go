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

// WithACL sets the ACL of lock nodes and of the parents that are created for them. The default grants all
// permissions to everyone. A client needs CREATE and READ on the lock path to queue, and DELETE to
// release a lock.
//
// zk.AuthACL(zk.PermAll) permits everything to clients with the same password or certificate, and
// nothing to others. Existing parents keep their ACL.
// Caution: a client that may create and delete nodes in such a parent can replace an idle lock path.
//
// Grant this client READ on its own nodes. Without it the lease cannot be renewed: a waiting client gets
// an error that wraps [zk.ErrNoAuth], and a holder loses the lock within a sixth of the session timeout.
func WithACL(acl []zk.ACL) tier.RegistryOption { return option{Option: zknode.WithACL(acl)} }

// WithAuth adds credentials, such as "digest" and "user:password". The client presents them on each
// connection, before it requests any lock.
func WithAuth(scheme string, credentials []byte) tier.RegistryOption {
	return option{Option: zknode.WithAuth(scheme, credentials)}
}

// WithTLS connects with TLS, to the secureClientPort of the servers. The certificate of each server must
// match its host in the connect string, or the ServerName of cfg. Servers ask for a client certificate by
// default: put it into cfg. It then counts as a credential of scheme "x509" for [WithACL]. A nil cfg uses
// the system's authorities and no client certificate.
//
// A handshake that takes longer than a sixth of the session timeout, or 2 s, fails.
func WithTLS(cfg *tls.Config) tier.RegistryOption { return option{Option: zknode.WithTLS(cfg)} }

// WithDialContext replaces the TCP dialer, for a proxy or for tests. The address is host:port as in the
// connect string; dial resolves the name. ctx ends after one second. Then the client tries the next
// server, even if dial has not returned, and Close does not wait for dial. [WithTLS] is applied on top.
func WithDialContext(dial func(ctx context.Context, network, address string) (net.Conn, error)) tier.RegistryOption {
	return option{Option: zknode.WithDialContext(dial)}
}

// WithKazoo makes locks that exclude kazoo's Lock, WriteLock, ReadLock and Election without any
// configuration of kazoo. Without this option kazoo needs extra_lock_patterns=["lock-"].
//
// Caution: set it in every tierlock process that shares a path with kazoo. A process without it waits for
// kazoo, but kazoo does not wait for that process. Kazoo also ignores Curator and zk.Lock.
//
// A lock then has two znodes and is lost when either is deleted. Both are written in one transaction, so
// the number of writes stays the same. A waiter, or a holder after a sixth of the session timeout, costs
// one read more.
//
// Use kazoo 2.9.0 or later if it takes read locks. An older ReadLock also waits for nodes behind its own
// and can deadlock with one of ours until either gives up.
//
// Create the path beforehand as a plain node, because kazoo expects it to stay, and this package removes
// empty parents that it has created. The sequence numbers of a plain node are never reset, and each lock
// node uses two of them.
func WithKazoo() tier.RegistryOption { return option{Option: zknode.WithKazoo()} }

// WithNodeData sets the content of the lock's znodes, at most 512 KiB of preferably UTF-8. Curator and kazoo show it for a participant or
// leader. By default the content is a JSON description of the process: host, pid and label. With other content,
// [tier.Contender] shows neither host nor pid of this process.
func WithNodeData(data []byte) tier.RegistryOption { return option{Option: zknode.WithNodeData(data)} }

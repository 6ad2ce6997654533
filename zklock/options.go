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
// zk.AuthACL(zk.PermAll) permits everything to clients with the same password or certificate, and nothing to other clients. Existing
// parents keep their ACL. Caution: a client that may create and delete nodes below an existing parent can replace an idle lock path with a
// path of its own.
//
// Grant this client READ on its own nodes, because the lease cannot be renewed without this permission. A waiting client would get an
// error that wraps [zk.ErrNoAuth], and a holder would lose the lock within a sixth of the session timeout.
func WithACL(acl []zk.ACL) tier.RegistryOption { return option{Option: zknode.WithACL(acl)} }

// WithAuth adds credentials, such as "digest" and "user:password". The client sends the credentials on each connection, before any request
// for a lock.
func WithAuth(scheme string, credentials []byte) tier.RegistryOption {
	return option{Option: zknode.WithAuth(scheme, credentials)}
}

// WithTLS connects with TLS, to the secureClientPort of the servers. The certificate of each server must match its host in the connect
// string, or the ServerName of cfg. By default, servers ask for a client certificate: put it into cfg. For [WithACL], the certificate is
// then a credential of the scheme "x509". With a nil cfg, the client trusts the system's authorities and has no certificate.
//
// A handshake that takes longer than a sixth of the session timeout, or 2 s, fails.
func WithTLS(cfg *tls.Config) tier.RegistryOption { return option{Option: zknode.WithTLS(cfg)} }

// WithDialContext replaces the TCP dialer, for a proxy or for tests. The address is host:port as in the connect string, and dial resolves
// the name. The context of dial ends after one second. The client then tries the next server, even if dial has not returned. Close does not
// wait for dial. If [WithTLS] is given, the client runs TLS over the connection that dial returns.
func WithDialContext(dial func(ctx context.Context, network, address string) (net.Conn, error)) tier.RegistryOption {
	return option{Option: zknode.WithDialContext(dial)}
}

// WithKazoo creates locks that exclude kazoo's Lock, WriteLock, ReadLock and Election, without any configuration of kazoo. Without this
// option, kazoo needs extra_lock_patterns=["lock-"].
//
// Caution: set this option in every tierlock process that shares a path with kazoo. A process without the option waits for kazoo, but
// kazoo does not wait for that process. Kazoo also ignores Curator and zk.Lock.
//
// With this option a lock has two znodes, and is lost when either znode is deleted. One transaction writes both znodes, so the number of
// writes does not change. Each waiter sends one more read. Each holder also sends one more read after a sixth of the session timeout.
//
// If kazoo takes read locks, use kazoo 2.9.0 or later. An older ReadLock also waits for nodes that queued after its own node. An older
// ReadLock can therefore deadlock with a tierlock process, until one of the two gives up.
//
// Create the path as a plain node first. Kazoo expects that the path is never deleted, but this package removes empty parents that it has
// created. The sequence numbers of a plain node are never reset, and each acquisition from ZooKeeper uses two numbers.
func WithKazoo() tier.RegistryOption { return option{Option: zknode.WithKazoo()} }

// WithNodeData sets the data of the lock's znodes, at most 512 KiB, preferably UTF-8. Curator and kazoo show this data for a participant
// or leader. By default the data is a JSON description of the process: host, process ID and label. With other data, [tier.Contender] shows
// neither host nor process ID of this process.
func WithNodeData(data []byte) tier.RegistryOption { return option{Option: zknode.WithNodeData(data)} }

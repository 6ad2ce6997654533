package etcd

import (
	"context"
	"fmt"
	"strings"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
	"google.golang.org/grpc/codes"

	"github.com/tierlock/tierlock/cmd/tierlock/internal/inspect"
	"github.com/tierlock/tierlock/internal/etcdversion"
	"github.com/tierlock/tierlock/internal/second"
)

// find adds findings about etcd: about permissions, servers, and keys without a lease.
func (k keys) find(ctx context.Context, r *inspect.Report) error {
	if err := k.findAccess(ctx, r); err != nil {
		return err
	}
	k.findServers(ctx, r)
	return k.findKeys(ctx, r)
}

// findAccess sends the requests of a process that queues, under a condition that is never true. The server checks the permissions
// nevertheless.
func (k keys) findAccess(ctx context.Context, r *inspect.Report) error {
	key := r.Path + "/tierlock"
	never := clientv3.Compare(clientv3.CreateRevision(key), "<", 0)
	_, err := k.client.Txn(ctx).If(never).Then(clientv3.OpPut(key, ""), clientv3.OpDelete(key+"-")).Commit()
	switch {
	case err == nil:
		r.Find(inspect.OK, "", "these credentials may queue: reading, putting and deleting keys is permitted")
	case codeOf(err) == codes.PermissionDenied:
		r.Find(inspect.Problem, "", "these credentials cannot queue: putting and deleting keys below %s/ is not permitted", r.Path)
	default:
		return err
	}
	return nil
}

// findServers asks each server for its status. It waits up to two seconds for each answer.
func (k keys) findServers(ctx context.Context, r *inspect.Report) {
	for _, endpoint := range k.client.Endpoints() {
		soon, cancel := context.WithTimeout(ctx, 2*time.Second)
		status, err := k.client.Status(soon, endpoint)
		cancel()
		switch {
		case err != nil:
			r.Find(inspect.Warning, "", "%s does not report its status: %v", endpoint, err)
		case len(status.Errors) > 0:
			r.Find(inspect.Problem, "", "%s reports errors: %s", endpoint, strings.Join(status.Errors, ", "))
		case etcdversion.TooOld(status.Version):
			r.Find(inspect.Warning, "", "%s has etcd %s, which can end leases early: another process may get a lock before its "+
				"holder knows; want %s",
				endpoint, status.Version, etcdversion.Needed)
		default:
			r.Find(inspect.OK, "", "%s has etcd %s", endpoint, status.Version)
		}
	}
}

// findKeys checks the leases of the keys in the queue, and the keys of locks below the path.
func (k keys) findKeys(ctx context.Context, r *inspect.Report) error {
	prefix := r.Path + "/"
	answer, err := k.client.Get(ctx, prefix, clientv3.WithPrefix())
	if err != nil {
		return err
	}
	leases := make(map[string]int64) // the key is the name of the contender
	below := ""
	for _, kv := range answer.Kvs {
		name := strings.TrimPrefix(string(kv.Key), prefix)
		if strings.Contains(name, "/") {
			below = second.Text(name)
		}
		leases[second.Text(name)] = kv.Lease
	}
	others := false
	for i := range r.Contenders {
		c := &r.Contenders[i]
		others = others || c.Kind == inspect.KindOther
		lease, there := leases[c.Node]
		switch {
		case !there: // the contender has left since the queue was read
		case lease != 0:
			c.Session = fmt.Sprintf("%x", lease)
		case i == 0:
			c.Ephemeral = false
			r.Find(inspect.Problem, c.Node, "belongs to no lease: it stays and blocks all entries behind it; if no process owns it, "+
				"tierlock break %s -token %d", r.Path, c.Token)
		default:
			c.Ephemeral = false
			r.Find(inspect.Problem, c.Node, "belongs to no lease: it stays and will block all entries behind it; if no process owns it, delete it")
		}
	}
	if others && below != "" {
		r.Find(inspect.Warning, "", "%s%s is a key of a lock below, for which concurrency.Mutex and etcdctl lock wait, too; give one of "+
			"the locks another path", prefix, below)
	}
	return k.findHolder(ctx, r, leases)
}

// findHolder reports how long the lease of the holder would last if the process of the holder died.
func (k keys) findHolder(ctx context.Context, r *inspect.Report, leases map[string]int64) error {
	h := r.Holder()
	if h == nil || leases[h.Node] == 0 {
		return nil
	}
	answer, err := k.client.TimeToLive(ctx, clientv3.LeaseID(leases[h.Node]))
	if err != nil {
		if codeOf(err) == codes.PermissionDenied {
			return nil
		}
		return err
	}
	r.Find(inspect.OK, h.Node, "its lease %s, of %d s, ends in %d s unless its process renews it", h.Session, answer.GrantedTTL, answer.TTL)
	return nil
}

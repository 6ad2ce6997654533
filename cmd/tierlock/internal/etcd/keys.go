package etcd

import (
	"context"
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strings"

	"go.etcd.io/etcd/api/v3/mvccpb"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/tierlock/tierlock/cmd/tierlock/internal/command"
	"github.com/tierlock/tierlock/cmd/tierlock/internal/inspect"
	"github.com/tierlock/tierlock/etcdlock"
	"github.com/tierlock/tierlock/internal/second"
)

// Keys are what is in an etcd.
type keys struct{ client *clientv3.Client }

// page is how many keys are read at a time.
const page = 1000

// paths finds the locks and semaphores below a path by the names of keys under a lease. It looks at so many keys, with
// their values: servers do not tell the lease otherwise.
func (k keys) paths(ctx context.Context, below string, limit int) (paths []string, looked int, complete bool, err error) {
	from, end := below+"/", clientv3.GetPrefixRangeEnd(below+"/")
	if below == "/" {
		from, end = "\x00", "\x00" // all keys
	}
	seen := make(map[string]bool)
	for looked < limit {
		answer, err := k.client.Get(ctx, from, clientv3.WithRange(end), clientv3.WithLimit(int64(min(page, limit-looked))))
		if err != nil {
			return nil, looked, false, fmt.Errorf("locks below %s: %w", below, err)
		}
		for _, kv := range answer.Kvs {
			key := string(kv.Key)
			from = key + "\x00"
			slash := max(0, strings.LastIndexByte(key, '/'))
			path := strings.TrimSuffix(key[:slash], "//permits")
			if !seen[path] && etcdlock.ValidatePath(path) == nil && contends(key[slash+1:], kv.Lease) {
				seen[path] = true
				paths = append(paths, path)
			}
		}
		looked += len(answer.Kvs)
		if !answer.More {
			return paths, looked, true, nil
		}
	}
	return paths, looked, false, nil
}

// ours are the names of the keys of etcdlock, which end in a rand.Text.
var ours = regexp.MustCompile(`^(read-|[1-9][0-9]*-)?[A-Z2-7]{26,}$`)

// contends reports whether a key is one of those with which etcdlock, or concurrency.Mutex, which
// takes the lease for a name, competes for a lock. There may be anything else in an etcd.
func contends(name string, lease int64) bool {
	return lease != 0 && (ours.MatchString(name) || name == fmt.Sprintf("%x", lease))
}

// remove deletes the key of a contender, which is the one that was made at the revision that is its token.
func (k keys) remove(ctx context.Context, path string, c *inspect.Contender) (bool, error) {
	found, err := k.client.Get(ctx, path+"/", clientv3.WithPrefix(), clientv3.WithMinCreateRev(c.Token),
		clientv3.WithMaxCreateRev(c.Token), clientv3.WithKeysOnly())
	if err != nil {
		return false, err
	}
	at := slices.IndexFunc(found.Kvs, func(kv *mvccpb.KeyValue) bool {
		return second.Text(strings.TrimPrefix(string(kv.Key), path+"/")) == c.Node
	})
	if at < 0 {
		return false, nil
	}
	key := string(found.Kvs[at].Key)
	return command.Remove(ctx, second.Text(key), path, refused, func() (bool, error) {
		answer, err := k.client.Txn(ctx).If(clientv3.Compare(clientv3.CreateRevision(key), "=", c.Token)).Then(clientv3.OpDelete(key)).Commit()
		return err == nil && answer.Succeeded, err
	})
}

// refused reports whether etcd has answered that it will not.
func refused(err error) bool {
	code := codeOf(err)
	return code == codes.PermissionDenied || code == codes.InvalidArgument
}

func codeOf(err error) codes.Code {
	var answer rpctypes.EtcdError
	if errors.As(err, &answer) {
		return answer.Code()
	}
	return status.Code(err)
}

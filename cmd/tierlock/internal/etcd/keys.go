package etcd

import (
	"context"
	"errors"
	"fmt"
	"regexp"
	"strings"

	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/tierlock/tierlock/etcdlock"
)

// The type keys reads the keys of an etcd.
type keys struct{ client *clientv3.Client }

// page is the number of keys that are read at a time.
const page = 1000

// The method paths finds the locks and semaphores below a path by the names of keys that have a lease. It reads at most limit keys. It also
// reads their values, because servers do not return the lease without the value.
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

// The expression ours matches the names of etcdlock's keys, which end with a rand.Text.
var ours = regexp.MustCompile(`^(read-|[1-9][0-9]*-)?[A-Z2-7]{26,}$`)

// contends reports whether a key belongs to a contender of etcdlock or of concurrency.Mutex. concurrency.Mutex uses the lease as the name
// of the key. etcd may contain any other keys as well.
func contends(name string, lease int64) bool {
	return lease != 0 && (ours.MatchString(name) || name == fmt.Sprintf("%x", lease))
}

func codeOf(err error) codes.Code {
	var answer rpctypes.EtcdError
	if errors.As(err, &answer) {
		return answer.Code()
	}
	return status.Code(err)
}

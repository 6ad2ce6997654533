package redis

import (
	"context"
	"fmt"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/tierlock/tierlock/cmd/tierlock/internal/inspect"
)

// The type keys reads the keys of a Redis.
type keys struct{ client redis.UniversalClient }

// The method paths finds the locks and semaphores below a path by the keys of their queues. It reads about limit keys, in the order in
// which the server returns them.
func (k keys) paths(ctx context.Context, below string, limit int) (paths []string, looked int, complete bool, err error) {
	primaries, err := k.primaries(ctx)
	if err != nil {
		return nil, 0, false, fmt.Errorf("locks below %s: %w", below, err)
	}
	seen := make(map[string]bool) // a scan may return a key twice
	for cursor := uint64(0); ; {
		found, next, err := primaries[0].Scan(ctx, cursor, "*"+queueMark, page).Result()
		if err != nil {
			return nil, looked, false, fmt.Errorf("locks below %s: %w", below, err)
		}
		looked += page
		for _, key := range found {
			if path := pathOf(key); !seen[path] && within(path, below) {
				seen[path] = true
				paths = append(paths, path)
			}
		}
		if cursor = next; cursor == 0 {
			primaries = primaries[1:]
		}
		if len(primaries) == 0 || looked >= limit {
			return paths, looked, len(primaries) == 0, nil
		}
	}
}

// The method primaries returns all primaries. Together they have all keys.
func (k keys) primaries(ctx context.Context) (all []redis.Cmdable, err error) {
	cluster, ok := k.client.(*redis.ClusterClient)
	if !ok {
		return []redis.Cmdable{k.client}, nil
	}
	var mu sync.Mutex // guards all
	err = cluster.ForEachMaster(ctx, func(_ context.Context, primary *redis.Client) error {
		mu.Lock()
		defer mu.Unlock()
		all = append(all, primary)
		return nil
	})
	return all, err
}

// serverOf returns the primary that has the keys of a path.
func (k keys) serverOf(ctx context.Context, path string) (redis.Cmdable, error) {
	if cluster, ok := k.client.(*redis.ClusterClient); ok {
		return cluster.MasterForKey(ctx, path)
	}
	return k.client, nil
}

const (
	page      = 1000                // the number of keys that the server checks for one answer
	queueMark = ":tierlock:queue"   // the end of the key of a queue
	permits   = ":tierlock:permits" // in the key of a queue for permits, this precedes queueMark
)

// pathOf returns the path of the lock or semaphore to which a queue belongs, in the form that redislock uses.
func pathOf(queue string) string {
	path := strings.TrimSuffix(strings.TrimSuffix(queue, queueMark), permits)
	if strings.HasPrefix(path, "{") && strings.HasSuffix(path, "}") && strings.Count(path, "{") == 1 {
		return path[1 : len(path)-1]
	}
	return path
}

// within(path, below) reports whether a path is equal to another path or below it. It knows the usual separators in Redis keys. All paths
// are below /.
func within(path, below string) bool {
	rest, found := strings.CutPrefix(path, below)
	return below == "/" || found && (rest == "" || rest[0] == '/' || rest[0] == ':')
}

// find adds findings about Redis: whether the server keeps its writes, what the key of the lock contains, and when this key expires.
func (k keys) find(ctx context.Context, r *inspect.Report) error {
	r.Find(inspect.OK, "", "these credentials may read the queue; permission to write is not checked")
	if err := k.findServer(ctx, r); err != nil {
		return err
	}
	kind, err := k.client.Type(ctx, r.Path).Result()
	if err != nil {
		return err
	}
	left, err := k.client.PTTL(ctx, r.Path).Result()
	if err != nil {
		return err
	}
	h := r.Holder()
	switch {
	case kind == "none":
	case kind != "string":
		r.Find(inspect.Problem, "", "the key is a %s, not a string: it counts as a taken lock, and all processes wait until it is deleted", kind)
	case left < 0:
		r.Find(inspect.Problem, "", "the key does not expire, and all processes wait for it: delete it if no process owns it")
	case h != nil:
		r.Find(inspect.OK, h.Node, "the key of the lock expires in %v unless its process renews it", left.Round(time.Millisecond))
	}
	if h != nil && h.Kind == inspect.KindOther {
		r.Find(inspect.Note, h.Node, "is the value of a key that another library has set; tierlock break cannot delete this key, but DEL can")
	}
	return nil
}

// findServer looks for settings that break promises, as far as the server shows its settings.
func (k keys) findServer(ctx context.Context, r *inspect.Report) error {
	server, err := k.serverOf(ctx, r.Path)
	if err != nil {
		return err
	}
	info, err := server.InfoMap(ctx, "server", "replication").Result()
	if err != nil {
		return err
	}
	release, replication := info["Server"]["redis_version"], info["Replication"]
	config, err := server.ConfigGet(ctx, "m*").Result()
	if err != nil {
		r.Find(inspect.Note, "", "the configuration of the server cannot be read: %v", err)
	}
	replicas, _ := strconv.Atoi(replication["connected_slaves"])
	switch {
	case replication["role"] != "master":
		r.Find(inspect.Problem, "", "the server is a replica: no process can queue there")
	case replicas > 0 && config["min-replicas-to-write"] == "0":
		r.Find(inspect.Warning, "", "min-replicas-to-write is 0: after a failover the former primary can continue "+
			"granting locks")
	case config["maxmemory"] != "" && config["maxmemory"] != "0" && config["maxmemory-policy"] != "noeviction":
		r.Find(inspect.Warning, "", "maxmemory-policy is %s: locks may be evicted", config["maxmemory-policy"])
	default:
		r.Find(inspect.OK, "", "the server has Redis %s, and is a primary", release)
	}
	return nil
}

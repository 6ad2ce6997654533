package store

import (
	"context"
	"fmt"
	"maps"
	"strconv"
	"strings"

	"github.com/redis/go-redis/v9"
)

// redisObserver has its own client.
type redisObserver struct {
	site
	client *redis.Client
}

func observeRedis(_ context.Context, place Place) (Observer, error) {
	o := &redisObserver{place.site(), connectRedis(place.Servers)}
	if _, err := o.Orphans(); err != nil {
		o.client.Close()
		return nil, fmt.Errorf("%w: %w", noRedis, err)
	}
	return o, nil
}

// Renew makes a new client, because the old one may have connections to a server that was replaced.
func (o *redisObserver) Renew(context.Context) error {
	o.client.Close()
	o.client = connectRedis(o.servers)
	return nil
}

// Orphans counts the keys whose name contains a lock path. It leaves out the keys in which redislock keeps the last token for a while.
func (o *redisObserver) Orphans() (n int64, err error) {
	ctx, cancel := context.WithTimeout(context.Background(), reachTimeout)
	defer cancel()
	keys := o.client.Scan(ctx, 0, "*"+o.base+"/*", 1000).Iterator()
	for keys.Next(ctx) {
		if !strings.HasSuffix(keys.Val(), ":tierlock:state") {
			n++
		}
	}
	if err := keys.Err(); err != nil {
		return 0, fmt.Errorf("look for leaked keys: %w", err)
	}
	return n, nil
}

func (o *redisObserver) Close() {
	ctx, cancel := context.WithTimeout(context.Background(), reachTimeout)
	defer cancel()
	_ = o.client.Del(ctx, o.base).Err()
	_ = o.client.Close()
}

// Traffic counts each read from a connection and each write to one as a packet, and each change of a key as a write. A script may change
// several keys, and each counts.
func (o *redisObserver) Traffic() (sum Traffic, ok bool) {
	for _, server := range o.servers {
		info, err := infoOf(context.Background(), server, "everything")
		if err != nil {
			return sum, false
		}
		t, ok := trafficIn(info)
		if !ok {
			return sum, false
		}
		sum.Packets += t.Packets
		sum.Writes = max(sum.Writes, t.Writes) // not a sum: the primary makes all writes
	}
	return sum, true
}

// trafficIn returns the traffic from the text of INFO. Servers have these statistics from Redis 6 on.
func trafficIn(info map[string]string) (Traffic, bool) {
	var n [3]int64
	for i, name := range []string{"total_reads_processed", "total_writes_processed", "rdb_changes_since_last_save"} {
		var err error
		if n[i], err = strconv.ParseInt(info[name], 10, 64); err != nil {
			return Traffic{}, false
		}
	}
	return Traffic{Packets: n[0] + n[1], Writes: n[2]}, true
}

// infoOf returns one section of the INFO of a server.
func infoOf(ctx context.Context, server, section string) (map[string]string, error) {
	client := connectRedis([]string{server})
	defer client.Close()
	ctx, cancel := context.WithTimeout(ctx, reachTimeout)
	defer cancel()
	sections, err := client.InfoMap(ctx, section).Result()
	info := map[string]string{}
	for _, s := range sections {
		maps.Copy(info, s)
	}
	return info, err
}

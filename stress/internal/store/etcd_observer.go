package store

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"net/http"
	"strconv"
	"strings"

	clientv3 "go.etcd.io/etcd/client/v3"
)

// etcdObserver has its own client.
type etcdObserver struct {
	site
	client *clientv3.Client
}

func observeEtcd(ctx context.Context, place Place) (Observer, error) {
	client, err := connectEtcd(place.Servers)
	if err != nil {
		return nil, err
	}
	o := &etcdObserver{place.site(), client}
	if _, err := o.Orphans(); err != nil {
		client.Close()
		return nil, fmt.Errorf("%w: %w", noEtcd, err)
	}
	return o, nil
}

// Renew makes a new client, because after an outage the old one waits longer and longer before it dials again.
func (o *etcdObserver) Renew(context.Context) error {
	client, err := connectEtcd(o.servers)
	if err != nil {
		return err
	}
	o.client.Close()
	o.client = client
	return nil
}

// Orphans counts the keys below the lock paths.
func (o *etcdObserver) Orphans() (n int64, err error) {
	ctx, cancel := context.WithTimeout(context.Background(), reachTimeout)
	defer cancel()
	answer, err := o.client.Get(ctx, o.base+"/", clientv3.WithPrefix(), clientv3.WithCountOnly())
	if err != nil {
		return 0, fmt.Errorf("look for leaked keys: %w", err)
	}
	return answer.Count, nil
}

func (o *etcdObserver) Close() {
	ctx, cancel := context.WithTimeout(context.Background(), reachTimeout)
	defer cancel()
	_, _ = o.client.Delete(ctx, o.base)
	_ = o.client.Close()
}

// Traffic counts each message as a packet, and each entry in the servers' log as a write.
func (o *etcdObserver) Traffic() (sum Traffic, ok bool) {
	ctx, cancel := context.WithTimeout(context.Background(), reachTimeout)
	defer cancel()
	for _, server := range o.servers {
		status, err := o.client.Status(ctx, server)
		if err != nil {
			return sum, false
		}
		n, err := messages(ctx, server)
		if err != nil {
			return sum, false
		}
		sum.Packets += n
		sum.Writes = max(sum.Writes, int64(status.RaftIndex)) // not a sum: each server has, or will have, all writes
	}
	return sum, true
}

// messages returns how many messages a server has received from clients and sent to them.
func messages(ctx context.Context, server string) (int64, error) {
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+server+"/metrics", nil)
	if err != nil {
		return 0, err
	}
	answer, err := http.DefaultClient.Do(request)
	if err != nil {
		return 0, err
	}
	defer answer.Body.Close()
	return parseMessages(answer.Body)
}

// parseMessages adds up the numbers in lines such as grpc_server_msg_sent_total{grpc_method="Txn",…} 5.
func parseMessages(metrics io.Reader) (sum int64, err error) {
	lines := bufio.NewScanner(metrics)
	for lines.Scan() {
		line := lines.Text()
		if !strings.HasPrefix(line, "grpc_server_msg_received_total{") && !strings.HasPrefix(line, "grpc_server_msg_sent_total{") {
			continue
		}
		n, err := strconv.ParseFloat(line[strings.LastIndexByte(line, ' ')+1:], 64)
		if err != nil {
			return 0, err
		}
		sum += int64(n)
	}
	return sum, lines.Err()
}

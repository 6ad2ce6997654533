package store

import (
	"strings"
	"testing"
)

func TestParseMessages(t *testing.T) {
	const metrics = `# HELP grpc_server_msg_received_total Total number of RPC stream messages received on the server.
grpc_server_msg_received_total{grpc_method="Txn",grpc_service="etcdserverpb.KV",grpc_type="unary"} 40
grpc_server_msg_sent_total{grpc_method="Watch",grpc_service="etcdserverpb.Watch",grpc_type="bidi_stream"} 1.2e+06
grpc_server_started_total{grpc_method="Txn",grpc_service="etcdserverpb.KV",grpc_type="unary"} 7
`
	if got, err := parseMessages(strings.NewReader(metrics)); got != 1_200_040 || err != nil {
		t.Errorf("got %d, %v", got, err)
	}
	if got, err := parseMessages(strings.NewReader("grpc_server_msg_sent_total{} x\n")); err == nil {
		t.Errorf("not a number: got %d", got)
	}
}

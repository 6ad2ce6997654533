package store

import (
	"strings"
	"testing"

	"github.com/tierlock/tierlock/internal/test/need"
)

func TestParseMessages(t *testing.T) {
	const metrics = `# HELP grpc_server_msg_received_total Total number of RPC stream messages received on the server.
grpc_server_msg_received_total{grpc_method="Txn",grpc_service="etcdserverpb.KV",grpc_type="unary"} 40
grpc_server_msg_sent_total{grpc_method="Watch",grpc_service="etcdserverpb.Watch",grpc_type="bidi_stream"} 1.2e+06
grpc_server_started_total{grpc_method="Txn",grpc_service="etcdserverpb.KV",grpc_type="unary"} 7
`
	need.Equal(t, "messages", need.Get(parseMessages(strings.NewReader(metrics)))(t), 1_200_040)
	need.That(t, "a text is taken for a number", need.ErrOf(parseMessages(strings.NewReader("grpc_server_msg_sent_total{} x\n"))) != nil)
}

package link

import (
	"fmt"

	"github.com/go-zookeeper/zk"

	"github.com/tierlock/tierlock/internal/wire"
)

// codeError is the error that the client library makes of a code.
func codeError(code int32) error {
	if err, ok := codeErrors[code]; ok {
		return err
	}
	return fmt.Errorf("unknown error: %d", code)
}

var codeErrors = map[int32]error{
	wire.CodeOK:                      nil,
	wire.CodeBadArguments:            zk.ErrBadArguments,
	wire.CodeNoNode:                  zk.ErrNoNode,
	wire.CodeNoAuth:                  zk.ErrNoAuth,
	wire.CodeBadVersion:              zk.ErrBadVersion,
	wire.CodeNoChildrenForEphemerals: zk.ErrNoChildrenForEphemerals,
	wire.CodeNodeExists:              zk.ErrNodeExists,
	wire.CodeNotEmpty:                zk.ErrNotEmpty,
	wire.CodeSessionExpired:          zk.ErrSessionExpired,
	wire.CodeInvalidACL:              zk.ErrInvalidACL,
	wire.CodeAuthFailed:              zk.ErrAuthFailed,
	wire.CodeSessionMoved:            zk.ErrSessionMoved,
}

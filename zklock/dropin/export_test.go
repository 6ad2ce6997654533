package dropin

import (
	"weak"

	"github.com/go-zookeeper/zk"
)

// Known reports whether there is a registry entry of conn.
func Known(conn weak.Pointer[zk.Conn]) bool {
	registries.mu.Lock()
	defer registries.mu.Unlock()
	_, known := registries.of[conn]
	return known
}

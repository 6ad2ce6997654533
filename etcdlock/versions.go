package etcdlock

import (
	"context"

	"github.com/tierlock/tierlock/etcdlock/internal/version"
)

// checkVersions warns about servers that cannot keep what is promised. It asks each once, and
// says nothing about those that do not answer.
func (s *store) checkVersions() {
	for _, endpoint := range s.client.Endpoints() {
		ctx, cancel := context.WithTimeout(s.ctx, s.patience())
		status, err := s.client.Status(ctx, endpoint)
		cancel()
		if err == nil && version.TooOld(status.Version) {
			s.options.logger.Warn("etcdlock: a server is too old to keep its word about leases: a lock may be given away before its holder knows. It should be "+version.Needed,
				"endpoint", endpoint, "version", status.Version)
		}
	}
}

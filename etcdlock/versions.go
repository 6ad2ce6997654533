package etcdlock

import (
	"context"
	"fmt"
)

// tooOld reports whether servers of a version answer keep-alives of leases that they have
// revoked (etcd issue 20615), or let a leader that was deposed renew and revoke (15247).
func tooOld(version string) bool {
	var major, minor, patch int
	if n, _ := fmt.Sscanf(version, "%d.%d.%d", &major, &minor, &patch); n < 3 {
		return false // nobody knows
	}
	if major != 3 {
		return major < 3
	}
	switch minor {
	case 4:
		return patch < 38
	case 5:
		return patch < 23
	case 6:
		return patch < 5
	}
	return minor < 4
}

// checkVersions warns about servers that cannot keep what is promised. It asks each once, and
// says nothing about those that do not answer.
func (s *store) checkVersions() {
	for _, endpoint := range s.client.Endpoints() {
		ctx, cancel := context.WithTimeout(s.ctx, s.patience())
		status, err := s.client.Status(ctx, endpoint)
		cancel()
		if err == nil && tooOld(status.Version) {
			s.options.logger.Warn("etcdlock: a server is too old to keep its word about leases: a lock may be given away before its holder knows. It should be 3.4.38, 3.5.23, 3.6.5 or later",
				"endpoint", endpoint, "version", status.Version)
		}
	}
}

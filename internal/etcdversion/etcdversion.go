// Package etcdversion knows the versions of etcd whose leases are not reliable.
package etcdversion

import "fmt"

// Needed is the text about versions to run instead.
const Needed = "3.4.38, 3.5.23, 3.6.5 or later"

// TooOld reports whether servers of a version answer keep-alives of leases that they have
// revoked (etcd issue 20615), or let a leader that was deposed renew and revoke (15247).
func TooOld(version string) bool {
	var major, minor, patch int
	if n, _ := fmt.Sscanf(version, "%d.%d.%d", &major, &minor, &patch); n < 3 {
		return false // unknown
	}
	patches := map[int]int{4: 38, 5: 23, 6: 5}
	return major < 3 || major == 3 && (minor < 4 || patch < patches[minor])
}

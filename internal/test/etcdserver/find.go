package etcdserver

import "github.com/tierlock/tierlock/internal/test/child"

// ErrNotFound means that this machine has no etcd; the text says how to install it.
const ErrNotFound = child.Missing(`etcdserver: no etcd on this machine; one of these gets you one:
  scripts/get-etcd.sh, or make etcd-server
  apt-get install -y etcd-server
  brew install etcd
  set $ETCD to the program`)

// built is the release that scripts/get-etcd.sh builds.
const built = "v3.7.3"

// The function find looks for an etcd. If $ETCD is set, it takes only that program. Otherwise it takes the one that scripts/get-etcd.sh has
// built, or else one on $PATH.
func find() (string, error) {
	return child.Find("ETCD", ErrNotFound, child.Cached("etcd-"+built), "etcd")
}

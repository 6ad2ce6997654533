package zktest

import (
	"crypto/sha1"
	"encoding/base64"
	"slices"
	"strings"
)

const (
	permRead   int32 = 1 << 0
	permWrite  int32 = 1 << 1
	permCreate int32 = 1 << 2
	permDelete int32 = 1 << 3
	permAdmin  int32 = 1 << 4
	permAll    int32 = 1<<5 - 1
)

// An identity is who somebody is under a scheme.
type identity struct{ scheme, id string }

type aclEntry struct {
	perms int32
	id    identity
}

var (
	anyone   = identity{"world", "anyone"}
	worldAll = []aclEntry{{perms: permAll, id: anyone}}
)

// digest is the identity that authenticating as "user:password" proves.
func digest(auth []byte) identity {
	user, _, _ := strings.Cut(string(auth), ":")
	sum := sha1.Sum(auth)
	return identity{"digest", user + ":" + base64.StdEncoding.EncodeToString(sum[:])}
}

// permitted reports whether an ACL grants one of perms to the bearer of auth.
func permitted(acl []aclEntry, perms int32, auth []identity) bool {
	return slices.ContainsFunc(acl, func(a aclEntry) bool {
		return a.perms&perms != 0 && (a.id == anyone || slices.Contains(auth, a.id))
	})
}

// fixACL is the ACL a node gets when a client asks for acl: "auth" stands for all that the client has proved.
func fixACL(acl []aclEntry, auth []identity) ([]aclEntry, Code) {
	var fixed []aclEntry
	for _, a := range acl {
		switch {
		case a.id == anyone:
			fixed = appendNew(fixed, a)
		case a.id.scheme == "auth":
			if len(auth) == 0 {
				return nil, CodeInvalidACL
			}
			for _, id := range auth {
				fixed = appendNew(fixed, aclEntry{perms: a.perms, id: id})
			}
		case a.id.scheme == "digest" && strings.Count(a.id.id, ":") == 1:
			fixed = appendNew(fixed, a)
		default:
			return nil, CodeInvalidACL
		}
	}
	if len(fixed) == 0 {
		return nil, CodeInvalidACL
	}
	return fixed, codeOK
}

func appendNew(list []aclEntry, a aclEntry) []aclEntry {
	if slices.Contains(list, a) {
		return list
	}
	return append(list, a)
}

// masked hides password hashes from whoever may read an ACL but not change it.
func masked(acl []aclEntry) []aclEntry {
	list := slices.Clone(acl)
	for i, a := range list {
		if a.id.scheme == "digest" {
			user, _, _ := strings.Cut(a.id.id, ":")
			list[i].id.id = user + ":x"
		}
	}
	return list
}

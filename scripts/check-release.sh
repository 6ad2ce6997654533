#!/usr/bin/env bash
# Builds what a release would give to users, from the commit at HEAD: the command, installed by its version, and each nested
# module that programs import, without its replace. A directory stands in for the module proxy. Nothing is published, and Go's
# own cache is only read.
#
#	scripts/check-release.sh [version]
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
version=${1:-v0.1.0-check}
root=github.com/tierlock/tierlock
work=$(mktemp -d)
trap 'chmod -R u+w "$work"; rm -rf "$work"' EXIT

# The nested modules are no part of the root's, wherever they are.
excluded=()
while read -r mod; do excluded+=(":(exclude)${mod%/go.mod}"); done < <(git ls-files '*/go.mod')
at=$work/proxy/$root/@v
mkdir -p "$at"
git archive --format=zip --prefix="$root@$version/" -o "$at/$version.zip" HEAD -- . "${excluded[@]}"
git show HEAD:go.mod >"$at/$version.mod"
echo "$version" >"$at/list"
echo "{\"Version\":\"$version\"}" >"$at/$version.info"

GOPROXY="file://$work/proxy,file://$(go env GOMODCACHE)/cache/download,$(go env GOPROXY)"
export GOPROXY GOMODCACHE=$work/cache GOBIN=$work/bin GOWORK=off GOFLAGS=-mod=mod GONOSUMDB=$root

if grep -q '^replace' go.mod; then echo "the root module has a replace: it cannot be installed by its version" >&2; exit 1; fi
echo "go install $root/cmd/tierlock@$version"
go install "$root/cmd/tierlock@$version"
"$GOBIN/tierlock" -h >/dev/null

for dir in $(git ls-files 'etcdlock/go.mod' 'pglock/go.mod' 'redislock/go.mod' 'contrib/*/go.mod' | xargs -r -n1 dirname); do
	echo "$root/$dir with $root@$version"
	copy=$work/copy/$dir
	mkdir -p "$copy"
	git archive HEAD:"$dir" | tar -x -C "$copy"
	(
		cd "$copy"
		go mod edit -dropreplace "$root" -require "$root@$version"
		go mod tidy >/dev/null 2>&1 || go mod tidy
		go vet ./...
	)
done

#!/usr/bin/env bash
# Builds everything that a release would give to users, from the commit at HEAD. This is each nested module for users, without its replace
# directives, and the command, installed by its version. A directory takes the place of the module proxy. Nothing is published, and Go's own
# cache is only read.
#
#	scripts/check-release.sh [version]
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
version=${1:-v0.1.0-check}
root=github.com/tierlock/tierlock
work=$(mktemp -d)
trap 'chmod -R u+w "$work"; rm -rf "$work"' EXIT

GOPROXY="file://$work/proxy,file://$(go env GOMODCACHE)/cache/download,$(go env GOPROXY)"
export GOPROXY GOMODCACHE=$work/cache GOBIN=$work/bin GOWORK=off GOFLAGS="-mod=mod -trimpath" GONOSUMDB=$root,$root/*

# publish puts the module of a directory into the directory that stands for the proxy, in the form that it has after its release.
publish() {
	local module=$root${1:+/$1} excluded=() copy=$work/copy/${1:-root} at other
	at=$work/proxy/$module/@v
	echo "$module@$version"
	mkdir -p "$copy" "$at"
	if [ -z "$1" ]; then # the root module does not contain the nested modules, wherever their directories are
		while read -r other; do excluded+=(":(exclude)${other%/go.mod}"); done < <(git ls-files '*/go.mod')
	fi
	git archive "HEAD${1:+:$1}" -- . "${excluded[@]}" | tar -x -C "$copy"
	(
		cd "$copy"
		for other in "$root" "$root"/{contrib/tierprom,etcdlock,mysqllock,pglock,redislock}; do
			if grep -q "^\s*$other v0.0.0" go.mod; then go mod edit -dropreplace "$other" -require "$other@$version"; fi
		done
		if grep -q '^replace' go.mod; then echo "$module has a replace: it cannot be installed by its version" >&2; exit 1; fi
		if [ -n "$1" ]; then
			go mod tidy >/dev/null 2>&1 || go mod tidy
			go vet ./...
		fi
		git init -q . && git add -A
		git archive --format=zip --prefix="$module@$version/" -o "$at/$version.zip" "$(git write-tree)"
		cp go.mod "$at/$version.mod"
	)
	echo "$version" >"$at/list"
	echo "{\"Version\":\"$version\"}" >"$at/$version.info"
}

for dir in "" etcdlock mysqllock pglock redislock $(git ls-files 'contrib/*/go.mod' | xargs -r -n1 dirname) cmd/tierlock; do publish "$dir"; done

echo "go install $root/cmd/tierlock@$version"
go install "$root/cmd/tierlock@$version"
"$GOBIN/tierlock" -h >/dev/null

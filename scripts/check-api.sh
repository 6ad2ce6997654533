#!/usr/bin/env bash
# Prints what programs that import these modules would have to change since a commit. It uses apidiff, which compares types, while the files
# in api/ are only text. If there is anything to print, and CHANGELOG.md has not changed since that commit, the script fails.
#
#	scripts/check-api.sh origin/main
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
base=$1
work=$(mktemp -d)
trap 'git worktree remove --force "$work/base"; rm -rf "$work"' EXIT
git worktree add --quiet --detach "$work/base" "$base"

export GOWORK=off GOFLAGS=-trimpath
apidiff() { (cd "$1" && go run golang.org/x/exp/cmd/apidiff@v0.0.0-20261014143641-f0251eb4aa3e "${@:2}"); }
changes=
for mod in $(git ls-files go.mod 'etcdlock/go.mod' 'mysqllock/go.mod' 'pglock/go.mod' 'redislock/go.mod' 'contrib/*/go.mod'); do
	[ -f "$work/base/$mod" ] || continue # it is new
	dir=$(dirname "$mod")
	path=$(sed -n 's/^module //p' "$mod")
	apidiff "$work/base/$dir" -m -w "$work/before" "$path"
	apidiff "$dir" -m -w "$work/now" "$path"
	found=$(apidiff "$dir" -m -incompatible "$work/before" "$work/now")
	[ -z "$found" ] || changes+="$path: $found"$'\n'
done
[ -n "$changes" ] || exit 0
printf '%s' "$changes" >&2
git diff --quiet "$base" -- CHANGELOG.md || exit 0
echo "Programs would have to change: CHANGELOG.md has to say what to write instead." >&2
exit 1

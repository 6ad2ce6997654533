# Functions for scripts that unpack Debian packages; such scripts source this file. Nothing is installed. apt uses its own files below
# $work, and the mirror that this machine already uses. It accepts only packages that Debian's keys have signed.
keyring=/usr/share/keyrings/debian-archive-keyring.gpg
cache=${XDG_CACHE_HOME:-$HOME/.cache}/tierlock

# Prints the mirrors of the machine's own release.
mirrors() {
	apt-get --print-uris update | sed -n "s|^'\(.*\)/dists/$(. /etc/os-release && echo "$VERSION_CODENAME")/InRelease' .*|\1|p"
}

private_apt() {
	apt-get -qq -o Dir::State="$work" -o Dir::State::status="$work/status" -o Dir::Cache="$work" \
		-o Dir::Etc::sourcelist="$work/sources.list" -o Dir::Etc::sourceparts=/dev/null \
		-o Dir::Etc::preferences=/dev/null -o Dir::Etc::preferencesparts=/dev/null "$@"
}

# unpack SUITE PACKAGE... unpacks the files of the packages below $work.
unpack() {
	local suite=$1
	shift
	mkdir -p "$work"/{lists/partial,archives/partial}
	touch "$work/status"
	mirrors | sed "s|.*|deb [target=Packages signed-by=$keyring] & $suite main|" >"$work/sources.list"
	private_apt update
	(cd "$work" && private_apt download "$@")
	for deb in "$work"/*.deb; do dpkg-deb -x "$deb" "$work"; done
}

finish() {
	if [ $? -ne 0 ]; then
		why=$(grep -m1 -e '^E: ' -e 'Failed to fetch' "$work/log" || tail -n 1 "$work/log")
		echo "no $what to be had here: $why" >&2
	fi
	rm -rf "$work"
}

# cached WHAT NAME sets target to the path of NAME in the cache. If NAME is not there, the caller's function fetch has to create it as
# $work/got. Do not call cached in $(…) or in a condition, because bash then ignores set -e, and a partly fetched file would stay in the
# cache.
cached() {
	what=$1 target=$cache/$2
	if [ ! -e "$target" ]; then
		mkdir -p "$cache"
		work=$(mktemp -d "$cache/fetch-XXXXXX")
		trap finish EXIT
		(fetch) >"$work/log" 2>&1
		# Another process may have fetched the same in the meantime.
		mv -T "$work/got" "$target" 2>>"$work/log" || [ -e "$target" ]
	fi
}

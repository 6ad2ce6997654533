#!/usr/bin/env bash
# Prints the folder of a ZooKeeper 3.9, for $ZOOKEEPER_HOME; fetches it into the cache if it is not there.
# It is Debian 13's, from the mirror this machine uses already. Nothing is installed: apt works on files of its own,
# and takes only what Debian's keys have signed.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")"

suite=trixie
keyring=/usr/share/keyrings/debian-archive-keyring.gpg
cache=${XDG_CACHE_HOME:-$HOME/.cache}/tierlock
home=$cache/zookeeper-3.9

# Where the machine's own release comes from.
mirrors() {
	apt-get --print-uris update | sed -n "s|^'\(.*\)/dists/$(. /etc/os-release && echo "$VERSION_CODENAME")/InRelease' .*|\1|p"
}

private_apt() {
	apt-get -qq -o Dir::State="$work" -o Dir::State::status="$work/status" -o Dir::Cache="$work" \
		-o Dir::Etc::sourcelist="$work/sources.list" -o Dir::Etc::sourceparts=/dev/null \
		-o Dir::Etc::preferences=/dev/null -o Dir::Etc::preferencesparts=/dev/null "$@"
}

fetch() {
	mkdir -p "$work"/{lists/partial,archives/partial,home/lib}
	touch "$work/status"
	mirrors | sed "s|.*|deb [target=Packages signed-by=$keyring] & $suite main|" >"$work/sources.list"
	private_apt update
	(cd "$work" && private_apt download libzookeeper-java libdropwizard-metrics-java libsnappy-java libslf4j-java)
	for deb in "$work"/*.deb; do dpkg-deb -x "$deb" "$work"; done
	# All that a server loads without an admin server and TLS.
	for name in zookeeper zookeeper-jute metrics-core snappy-java slf4j-api slf4j-simple; do
		jar=$(realpath "$work/usr/share/java/$name.jar")
		go run ./nomanifest "$jar" "$work/home/lib/$(basename "$jar")"
	done
	version=$("${JAVA_HOME:+$JAVA_HOME/bin/}java" -cp "$work/home/lib/*" org.apache.zookeeper.Version)
	[[ $version == 3.9.* ]] || { echo "$suite has ZooKeeper $version"; exit 1; }
	# Whoever else was fetching may have been faster.
	mv -T "$work/home" "$home" || [ -d "$home" ]
}

finish() {
	if [ $? -ne 0 ]; then
		why=$(grep -m1 -e '^E: ' -e 'Failed to fetch' "$work/log" || tail -n 1 "$work/log")
		echo "no ZooKeeper 3.9 to be had here: $why" >&2
	fi
	rm -rf "$work"
}

if [ ! -d "$home" ]; then
	mkdir -p "$cache"
	work=$(mktemp -d "$cache/fetch-XXXXXX")
	trap finish EXIT
	(fetch) >"$work/log" 2>&1
fi
echo "$home"

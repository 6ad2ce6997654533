#!/usr/bin/env bash
# Prints the folder of a ZooKeeper 3.9, Debian 13's, for $ZOOKEEPER_HOME; fetches it into the cache if it is not there.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")"
. ./debian.sh

fetch() {
	unpack trixie libzookeeper-java libdropwizard-metrics-java libsnappy-java libslf4j-java libnetty-java libjctools-java
	mkdir -p "$work/got/lib"
	# All that a server loads without an admin server.
	for name in zookeeper zookeeper-jute metrics-core snappy-java slf4j-api slf4j-simple jctools-core \
		netty-{buffer,codec,common,handler,resolver,transport,transport-native-epoll,transport-native-unix-common}; do
		jar=$(realpath "$work/usr/share/java/$name.jar")
		go run ./nomanifest "$jar" "$work/got/lib/$(basename "$jar")"
	done
	version=$("${JAVA_HOME:+$JAVA_HOME/bin/}java" -cp "$work/got/lib/*" org.apache.zookeeper.Version)
	[[ $version == 3.9.* ]] || { echo "Debian 13 has ZooKeeper $version"; exit 1; }
}

cached "ZooKeeper 3.9" zookeeper-3.9-netty
echo "$target"

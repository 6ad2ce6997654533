#!/usr/bin/env bash
# Prints the directory of ZooKeeper 3.9 of Debian 13, for $ZOOKEEPER_HOME. If it is not in the cache, fetches it into the cache.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")"
. ./debian.sh

fetch() {
	unpack trixie libzookeeper-java libdropwizard-metrics-java libsnappy-java libslf4j-java libnetty-java libjctools-java
	mkdir -p "$work/got/lib"
	# These are all jars that a server without an admin server loads.
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

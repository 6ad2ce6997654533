#!/usr/bin/env bash
# Makes sure that Java and the jars of a ZooKeeper server are on this machine. If they are, changes nothing. Otherwise says what it will
# install, and then installs it. Debian's package libzookeeper-java contains the jars. It starts no daemon, and needs half as many packages
# as the package zookeeper, which needs the Java of a desktop.
set -euo pipefail

have_java() {
	[ -n "${JAVA_HOME:-}" ] && [ -x "$JAVA_HOME/bin/java" ] || [ -x /opt/homebrew/opt/openjdk/bin/java ] ||
		[ -x /usr/local/opt/openjdk/bin/java ] || java -version >/dev/null 2>&1
}

have_jars() {
	if [ -n "${ZOOKEEPER_HOME:-}" ]; then
		compgen -G "$ZOOKEEPER_HOME/lib/zookeeper-*.jar" >/dev/null
		return
	fi
	{ [ -f /usr/share/java/zookeeper.jar ] && [ -f /usr/share/java/slf4j-simple.jar ]; } ||
		compgen -G "/opt/homebrew/opt/zookeeper/libexec/lib/zookeeper-*.jar" >/dev/null ||
		compgen -G "/usr/local/opt/zookeeper/libexec/lib/zookeeper-*.jar" >/dev/null
}

have_all() { have_java && have_jars; }

have_all && exit 0

as_root=()
[ "$(id -u)" -eq 0 ] || as_root=(sudo)

if [ -z "${ZOOKEEPER_HOME:-}" ] && command -v apt-get >/dev/null && { [ "$(id -u)" -eq 0 ] || command -v sudo >/dev/null; }; then
	packages=(libzookeeper-java libslf4j-java)
	have_java || packages+=(default-jre-headless)
	cat >&2 <<-END
		This machine has no ZooKeeper server, or no Java for one. '${as_root[*]:+${as_root[*]} }apt-get install' now installs
		  ${packages[*]}
		and what they depend on. No daemon starts. To use another server, interrupt this and set \$ZOOKEEPER_HOME to an unpacked release.
	END
	"${as_root[@]}" apt-get update -q >&2
	"${as_root[@]}" env DEBIAN_FRONTEND=noninteractive apt-get install -q -y --no-install-recommends "${packages[@]}" >&2
	have_all && exit 0
fi

cat >&2 <<'END'
No ZooKeeper server on this machine; one of these gets you one:
  apt-get install -y zookeeper
  brew install zookeeper
  set $ZOOKEEPER_HOME to an unpacked release
  docker run --rm -p 127.0.0.1:2181:2181 zookeeper:3.9   and go run ./stress -zk 127.0.0.1:2181
END
exit 1

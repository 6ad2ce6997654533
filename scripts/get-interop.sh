#!/usr/bin/env bash
# Makes sure that Curator, kazoo and a JDK are on this machine, for the tests in internal/test/interop and for make verdicts. If they are,
# changes nothing. A JDK is needed, and not only Java, because the Java programs are compiled from their sources.
set -euo pipefail

have_jdk() { "${JAVA_HOME:+$JAVA_HOME/bin/}java" --list-modules 2>/dev/null | grep -q '^jdk\.compiler'; }
have_curator() { [ -f /usr/share/java/curator-recipes.jar ] && [ -f /usr/share/java/slf4j-simple.jar ]; }
have_kazoo() { /usr/bin/python3 -c 'import kazoo' 2>/dev/null; }
have_all() { have_jdk && have_curator && have_kazoo; }

have_all && exit 0

as_root=()
[ "$(id -u)" -eq 0 ] || as_root=(sudo)

if command -v apt-get >/dev/null && { [ "$(id -u)" -eq 0 ] || command -v sudo >/dev/null; }; then
	packages=()
	have_jdk || packages+=(default-jdk-headless)
	have_curator || packages+=(libcurator-recipes-java libslf4j-java)
	have_kazoo || packages+=(python3-kazoo)
	echo "installing ${packages[*]}" >&2
	"${as_root[@]}" apt-get update -q >&2
	"${as_root[@]}" env DEBIAN_FRONTEND=noninteractive apt-get install -q -y --no-install-recommends "${packages[@]}" >&2
	have_all && exit 0
fi

cat >&2 <<'END'
The interop tests and the verdicts need a JDK of at least 17, Curator and kazoo where Debian has them:
  apt-get install -y default-jdk-headless libcurator-recipes-java libslf4j-java python3-kazoo
END
exit 1

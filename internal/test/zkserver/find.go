package zkserver

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"

	"github.com/tierlock/tierlock/internal/test/child"
)

// ErrNotFound means that this machine has no Java or no ZooKeeper server; the text says how to install them.
const ErrNotFound = child.Missing(`zkserver: no ZooKeeper server on this machine; one of these gets you one:
  apt-get install -y zookeeper
  brew install zookeeper
  set $ZOOKEEPER_HOME to an unpacked release
  docker run --rm -p 127.0.0.1:2181:2181 zookeeper:3.9   and use 127.0.0.1:2181 (-zk, $ZK_SERVERS)`)

// A launcher contains the paths that are necessary to start a server.
type launcher struct {
	java      string
	classpath string
}

// The function find looks for Java and for the jars of the server. If $ZOOKEEPER_HOME is set, it takes only the release there. Otherwise it
// takes Debian's package or Homebrew's.
func find() (launcher, error) {
	classpath, err := findClasspath()
	if err != nil {
		return launcher{}, err
	}
	java, err := findJava()
	if err != nil {
		return launcher{}, err
	}
	return launcher{java: java, classpath: classpath}, nil
}

func findClasspath() (string, error) {
	if home := os.Getenv("ZOOKEEPER_HOME"); home != "" {
		if !hasServerJar(home) {
			return "", fmt.Errorf("%w\n(no lib/zookeeper-*.jar in $ZOOKEEPER_HOME, %s)", ErrNotFound, home)
		}
		return filepath.Join(home, "lib", "*"), nil
	}
	// The manifest of Debian's jar lists all the jars that the server needs, except a logger and half of Netty.
	if debian := "/usr/share/java/zookeeper.jar"; isFile(debian) {
		return debian + ":/usr/share/java/slf4j-simple.jar:/usr/share/java/netty-codec.jar:/usr/share/java/netty-resolver.jar", nil
	}
	for _, home := range []string{"/opt/homebrew/opt/zookeeper/libexec", "/usr/local/opt/zookeeper/libexec"} {
		if hasServerJar(home) {
			return filepath.Join(home, "lib", "*"), nil
		}
	}
	return "", ErrNotFound
}

func findJava() (string, error) {
	// Homebrew's java is tried before $PATH, because macOS has a /usr/bin/java that only reports that Java is missing.
	for _, home := range []string{os.Getenv("JAVA_HOME"), "/opt/homebrew/opt/openjdk", "/usr/local/opt/openjdk"} {
		if java := filepath.Join(home, "bin", "java"); home != "" && isFile(java) {
			return java, nil
		}
	}
	java, err := exec.LookPath("java")
	if err != nil {
		return "", fmt.Errorf("%w\n(no Java: %w)", ErrNotFound, err)
	}
	return java, nil
}

func hasServerJar(home string) bool {
	jars, _ := filepath.Glob(filepath.Join(home, "lib", "zookeeper-*.jar"))
	return len(jars) > 0
}

func isFile(name string) bool {
	info, err := os.Stat(name)
	return err == nil && info.Mode().IsRegular()
}

// Package interop finds Curator and kazoo on this machine. With it, tests can run programs that use these libraries.
//
// The tests of this package run this project's lock together with unmodified locks of other libraries on the same paths: Curator (Java),
// kazoo (Python) and go-zookeeper's zk.Lock. Each library runs in processes of its own. Where it matters, this project's lock also runs in
// processes of its own.
package interop

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"

	"github.com/tierlock/tierlock/internal/test/child"
)

// classpath contains the jars of Debian's packages. The manifests of these jars name the other jars that they need.
const classpath = "/usr/share/java/curator-recipes.jar:/usr/share/java/slf4j-simple.jar"

// Python is the interpreter for which Debian's packages are installed.
const Python = "/usr/bin/python3"

// Required reports whether missing libraries are an error instead of a reason to skip tests.
func Required() bool { return os.Getenv("TIERLOCK_REQUIRE_INTEROP") == "1" }

// Curator compiles a Java file into dir. It returns the command line that runs the class with the name of the file. Without Curator or a
// JDK, the error is a [child.Missing].
func Curator(source, dir string) (command []string, err error) {
	for jar := range strings.SplitSeq(classpath, ":") {
		if _, err := os.Stat(jar); err != nil {
			return nil, missing("Curator", err)
		}
	}
	java, err := jdk()
	if err != nil {
		return nil, missing("a JDK", err)
	}
	out, err := exec.Command(java, "-m", "jdk.compiler/com.sun.tools.javac.Main", "-d", dir, "-cp", classpath, source).CombinedOutput()
	if err != nil {
		return nil, fmt.Errorf("compile %s: %w: %s", source, err, out)
	}
	return []string{
		java, "-XX:TieredStopAtLevel=1", "-Xmx128m", "-Dorg.slf4j.simpleLogger.defaultLogLevel=warn", "-cp", dir + ":" + classpath,
		strings.TrimSuffix(filepath.Base(source), ".java"),
	}, nil
}

// Kazoo returns the command line that runs a Python file. Without kazoo, the error is a [child.Missing].
func Kazoo(source string) (command []string, err error) {
	if err := exec.Command(Python, "-c", "import kazoo").Run(); err != nil {
		return nil, missing("kazoo", err)
	}
	return []string{Python, source}, nil
}

// The function jdk returns the java command of a JDK.
func jdk() (java string, err error) {
	java = "java"
	if home := os.Getenv("JAVA_HOME"); home != "" {
		java = filepath.Join(home, "bin", java)
	}
	modules, err := exec.Command(java, "--list-modules").Output()
	if err == nil && !strings.Contains(string(modules), "jdk.compiler") {
		err = errors.New("no compiler")
	}
	return java, err
}

func missing(what string, why error) error {
	return child.Missing(fmt.Sprintf("%s is not on this machine (%v); scripts/get-interop.sh gets it", what, why))
}

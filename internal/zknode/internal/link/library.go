package link

import (
	"log/slog"
	"runtime/debug"
	"strings"
	"sync"
)

// The package relies on undocumented behaviour of the client library. TestTheClientLibrary checks it.
const (
	library       = "github.com/go-zookeeper/zk"
	testedLibrary = "v1.0.4" // the version in go.mod, with which the tests ran
)

// linkedLibrary returns the version of the client library in a program. It returns "" if the version is not known, because a program may be
// built without modules.
func linkedLibrary(info *debug.BuildInfo) string {
	if info == nil {
		return ""
	}
	for _, m := range info.Deps {
		switch {
		case m.Path != library:
		case m.Replace != nil:
			return strings.TrimSpace(m.Replace.Path + " " + m.Replace.Version)
		default:
			return m.Version
		}
	}
	return ""
}

// warnOfLibrary logs a warning if the linked version is not the tested one.
func warnOfLibrary(logger *slog.Logger, linked string) {
	if linked != "" && linked != testedLibrary {
		logger.Warn("zklock: untested version of the client library go-zookeeper/zk; build with the tested version",
			"library", library, "linked", linked, "tested", testedLibrary)
	}
}

// judgeLibrary calls warnOfLibrary once in a process.
func judgeLibrary(logger *slog.Logger) {
	judged.Do(func() {
		info, _ := debug.ReadBuildInfo()
		warnOfLibrary(logger, linkedLibrary(info))
	})
}

var judged sync.Once

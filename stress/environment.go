package main

import (
	"bufio"
	"os"
	"runtime"
	"runtime/debug"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/go-zookeeper/zk"
	"golang.org/x/sys/unix"

	"github.com/tierlock/tierlock/internal/zkserver"
	"github.com/tierlock/tierlock/stress/page"
)

// environment is where something was measured. What is not known is empty.
type environment struct {
	Date      time.Time `json:"date"`
	Commit    string    `json:"commit,omitempty"`
	Go        string    `json:"go"`
	CPU       string    `json:"cpu"`
	CPUs      int       `json:"cpus"`
	System    string    `json:"system"`
	ZooKeeper string    `json:"zookeeper,omitempty"`
	Servers   int       `json:"servers"`
	Sync      string    `json:"fsync"`
}

// surroundings looks at this machine and at the servers.
func surroundings(cfg Config) *environment {
	e := &environment{
		Date: time.Now().UTC().Truncate(time.Second), Commit: commit(), Go: runtime.Version(),
		CPU: processor(), CPUs: runtime.NumCPU(), System: system(),
		ZooKeeper: serverVersion(cfg.Servers), Servers: len(cfg.Servers), Sync: "forced",
	}
	switch {
	case !cfg.Private:
		e.Sync = "as the server is configured"
	case cfg.Chaos:
		e.Sync = "off"
	}
	return e
}

// commit is that of the sources, if go build was told to note it.
func commit() (text string) {
	info, ok := debug.ReadBuildInfo()
	if !ok {
		return ""
	}
	var changed string
	for _, s := range info.Settings {
		switch s.Key {
		case "vcs.revision":
			text = s.Value[:min(12, len(s.Value))]
		case "vcs.modified":
			if s.Value == "true" {
				changed = " and changes"
			}
		}
	}
	return text + changed
}

// processor is the model on Linux, and the architecture elsewhere.
func processor() string {
	file, err := os.Open("/proc/cpuinfo")
	if err != nil {
		return runtime.GOARCH
	}
	defer file.Close()
	for lines := bufio.NewScanner(file); lines.Scan(); {
		if name, value, found := strings.Cut(lines.Text(), ":"); found && strings.TrimSpace(name) == "model name" {
			return strings.TrimSpace(value)
		}
	}
	return runtime.GOARCH
}

func system() string {
	var u unix.Utsname
	if err := unix.Uname(&u); err != nil {
		return runtime.GOOS
	}
	return unix.ByteSliceToString(u.Sysname[:]) + " " + unix.ByteSliceToString(u.Release[:])
}

// serverVersion is what the first server says that it is.
func serverVersion(servers []string) string {
	answer, err := zkserver.Ask(zk.FormatServers(slices.Clone(servers))[0], "srvr")
	if err != nil {
		return ""
	}
	line, _, _ := strings.Cut(answer, "\n")
	_, version, _ := strings.Cut(line, "version: ")
	return version[:max(0, strings.IndexAny(version+",", "-, "))]
}

func (e *environment) facts() []page.Fact {
	all := []page.Fact{
		{Name: "date", Value: e.Date.Format("2 January 2006, 15:04 MST")},
		{Name: "commit", Value: e.Commit},
		{Name: "Go", Value: e.Go},
		{Name: "processor", Value: e.CPU},
		{Name: "processors", Value: strconv.Itoa(e.CPUs)},
		{Name: "system", Value: e.System},
		{Name: "ZooKeeper", Value: e.ZooKeeper},
		{Name: "servers", Value: strconv.Itoa(e.Servers)},
		{Name: "sync of the log", Value: e.Sync},
	}
	return slices.DeleteFunc(all, func(f page.Fact) bool { return f.Value == "" })
}

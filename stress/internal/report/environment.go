package report

import (
	"bufio"
	"os"
	"runtime"
	"runtime/debug"
	"slices"
	"strconv"
	"strings"
	"time"
)

// Environment describes the machine and the software of a measurement. Unknown fields are empty.
type Environment struct {
	Date       time.Time `json:"date"`
	Commit     string    `json:"commit,omitempty"`
	Go         string    `json:"go"`
	CPU        string    `json:"cpu"`
	CPUs       int       `json:"cpus"`
	System     string    `json:"system"`
	ZooKeeper  string    `json:"zookeeper,omitempty"` // version of the servers
	Etcd       string    `json:"etcd,omitempty"`      // version of the servers
	PostgreSQL string    `json:"postgresql,omitempty"`
	MariaDB    string    `json:"mariadb,omitempty"`
	Redis      string    `json:"redis,omitempty"`
	Servers    int       `json:"servers"`
	Sync       string    `json:"fsync"`
}

// Machine returns the environment, with those fields that can be found out on this machine.
func Machine() *Environment {
	return &Environment{
		Date: time.Now().UTC().Truncate(time.Second), Commit: commit(), Go: runtime.Version(),
		CPU: processor(), CPUs: runtime.NumCPU(), System: system(),
	}
}

// commit returns the commit of the sources, if the go command has recorded it in this program.
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

// processor returns the model of the processor on Linux. On other systems it returns the architecture.
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

// Fact is a property of an environment.
type Fact struct{ Name, Value string }

// Facts returns the fields that are known.
func (e *Environment) Facts() []Fact {
	all := []Fact{
		{Name: "date", Value: e.Date.Format("2 January 2006, 15:04 MST")},
		{Name: "commit", Value: e.Commit},
		{Name: "Go", Value: e.Go},
		{Name: "processor", Value: e.CPU},
		{Name: "processors", Value: strconv.Itoa(e.CPUs)},
		{Name: "system", Value: e.System},
		{Name: "ZooKeeper", Value: e.ZooKeeper},
		{Name: "etcd", Value: e.Etcd},
		{Name: "PostgreSQL", Value: e.PostgreSQL},
		{Name: "MariaDB", Value: e.MariaDB},
		{Name: "Redis", Value: e.Redis},
		{Name: "servers", Value: strconv.Itoa(e.Servers)},
		{Name: "sync of the log", Value: e.Sync},
	}
	return slices.DeleteFunc(all, func(f Fact) bool { return f.Value == "" })
}

//go:build !linux

package child

import (
	"os/exec"
	"strconv"
	"strings"
)

// The function kin lists the children of a process.
func kin(pid int) (pids []int) {
	list, _ := exec.Command("pgrep", "-P", strconv.Itoa(pid)).Output() // pgrep fails if there are no children
	for _, field := range strings.Fields(string(list)) {
		if pid, err := strconv.Atoi(field); err == nil {
			pids = append(pids, pid)
		}
	}
	return pids
}

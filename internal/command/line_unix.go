//go:build linux || darwin || freebsd

package command

import (
	"bufio"
	"fmt"
	"os"
	"os/exec"
	"syscall"
)

// A line is what tierlock run and tierlock keep tell each other, over two pipes that end with
// the processes. Neither waits for the other to read.
//
//	held          keep has the lock, and starts the command when it has been asked
//	ask K         the Kth question of run: how long may the command live?
//	for N K       the answer to it: N nanoseconds, from the asking on
//	running PID   the command has begun; PID is its process group as well
//	stopped       the command was stopped from its terminal, or there is none to stop
//	done          nothing of the command is left; keep is about to end
type line struct {
	out   *os.File
	heard <-chan string // closed when the other process is gone
}

const (
	lineIn  = 3 // descriptors of keep
	lineOut = 4
)

func newLine(in, out *os.File) line {
	heard := make(chan string, 16)
	go func() {
		defer close(heard)
		for lines := bufio.NewScanner(in); lines.Scan(); {
			heard <- lines.Text()
		}
	}()
	return line{out, heard}
}

// callKeeper prepares cmd to be the other end.
func callKeeper(cmd *exec.Cmd) (line, error) {
	keeperIn, out, err := os.Pipe()
	if err != nil {
		return line{}, err
	}
	in, keeperOut, err := os.Pipe()
	if err != nil {
		return line{}, err
	}
	cmd.ExtraFiles = []*os.File{keeperIn, keeperOut} // lineIn, lineOut
	return newLine(in, out), nil
}

// answerFront is the end of keep. The command does not inherit it: it may outlive this process.
func answerFront() (line, error) {
	for _, fd := range []int{lineIn, lineOut} {
		var stat syscall.Stat_t
		if err := syscall.Fstat(fd, &stat); err != nil || stat.Mode&syscall.S_IFMT != syscall.S_IFIFO {
			return line{}, usageError("keep is started by tierlock run, not by hand")
		}
		syscall.CloseOnExec(fd)
	}
	return newLine(os.NewFile(lineIn, "from run"), os.NewFile(lineOut, "to run")), nil
}

// say tells the other process, if it is still there: whoever is not is noticed otherwise.
func (l line) say(format string, args ...any) { fmt.Fprintf(l.out, format+"\n", args...) }

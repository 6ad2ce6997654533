//go:build linux || darwin || freebsd || windows

package command

import (
	"bufio"
	"fmt"
	"os"
)

// A line connects tierlock run and tierlock keep by two pipes. The pipes end with the processes. Neither process waits until the other one
// reads.
//
//	"held"         from keep: keep has the lock, and starts the command after the first question
//	"ask K"        from run: question number K: how long may the command live?
//	"for N K"      from keep: the answer to question K: for N nanoseconds after run has sent the question
//	"running PID"  from keep: the command has begun; on Unix, PID is also the number of its process group
//	"rest"         from keep: all processes of the command of a slot have ended; the next "held" starts another slot
//	"rest"         from run: the answer to the "rest" of keep; from now on, run asks no question about the earlier command
//	"stopped"      from keep: the command was stopped from its terminal, or there is no command to stop
//	"done"         from keep: all processes of the command have ended, and keep is about to end
type line struct {
	out   *os.File
	heard <-chan string // closed when the other process has ended
}

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

// A lineEnd is the pair of pipes that keep inherits. The pipes keep their descriptor numbers. Lower numbers may belong to the command, for
// example to a jobserver of make.
type lineEnd struct{ in, out *os.File }

// openLine returns the line for run, and the end that keep inherits.
func openLine() (line, lineEnd, error) {
	theirIn, out, err := os.Pipe()
	if err != nil {
		return line{}, lineEnd{}, err
	}
	in, theirOut, err := os.Pipe()
	if err != nil {
		return line{}, lineEnd{}, err
	}
	return newLine(in, out), lineEnd{theirIn, theirOut}, nil
}

// The method words returns the arguments that tell the keeper the descriptor numbers.
func (e lineEnd) words() []string {
	return []string{"-line", fmt.Sprintf("%d,%d", e.in.Fd(), e.out.Fd())}
}

// close closes this process's copies. If this process kept copies open, the pipes would not end when the other process ends.
func (e lineEnd) close() {
	e.in.Close()
	e.out.Close()
}

// takeLine opens the end whose descriptors are in text. The command does not inherit the descriptors, because it may outlive this process.
func takeLine(text string) (line, error) {
	var in, out int
	_, err := fmt.Sscanf(text, "%d,%d", &in, &out)
	for _, fd := range []int{in, out} {
		if err != nil || !takePipe(fd) {
			return line{}, usageError("only \"tierlock run\" starts \"tierlock keep\"; start \"tierlock run\" instead")
		}
	}
	return newLine(os.NewFile(uintptr(in), "from run"), os.NewFile(uintptr(out), "to run")), nil
}

// say sends a message to the other process. It ignores errors, because other code detects the end of the other process.
func (l line) say(format string, args ...any) { fmt.Fprintf(l.out, format+"\n", args...) }

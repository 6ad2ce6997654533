package command

import (
	"os"
	"os/exec"
	"syscall"
	"time"
	"unsafe"
)

// Package syscall does not have these functions for job objects and consoles.
var (
	kernel32                  = syscall.NewLazyDLL("kernel32.dll")
	createJobObject           = kernel32.NewProc("CreateJobObjectW")
	assignProcessToJobObject  = kernel32.NewProc("AssignProcessToJobObject")
	setInformationJobObject   = kernel32.NewProc("SetInformationJobObject")
	queryInformationJobObject = kernel32.NewProc("QueryInformationJobObject")
	terminateJobObject        = kernel32.NewProc("TerminateJobObject")
	setConsoleCtrlHandler     = kernel32.NewProc("SetConsoleCtrlHandler")
	generateConsoleCtrlEvent  = kernel32.NewProc("GenerateConsoleCtrlEvent")
	ntResumeProcess           = syscall.NewLazyDLL("ntdll.dll").NewProc("NtResumeProcess")
)

// A child is the command, together with all processes that it has started. They are the members of a job object, and no process can leave
// the job object.
type child struct {
	pid    int
	ended  bool
	events chan syscall.WaitStatus
	gone   chan struct{} // closed when the command and all processes that it has started have ended
	job    uintptr       // when this process ends, its handle is closed, and Windows ends the members
}

// startChild starts the command. The command becomes a member of the job before it can start other processes.
func startChild(command, env []string, _ bool) (*child, error) {
	const suspended = 0x4
	cmd := exec.Command(command[0], command[1:]...)
	cmd.Env = append(os.Environ(), env...)
	cmd.Stdin, cmd.Stdout, cmd.Stderr = os.Stdin, os.Stdout, os.Stderr
	cmd.SysProcAttr = &syscall.SysProcAttr{CreationFlags: suspended}
	c := &child{events: make(chan syscall.WaitStatus), gone: make(chan struct{})}
	if err := c.openJob(); err != nil {
		return nil, err
	}
	if err := cmd.Start(); err != nil {
		return nil, err
	}
	c.pid = cmd.Process.Pid
	if err := c.resume(); err != nil {
		cmd.Process.Kill()
		cmd.Wait()
		return nil, err
	}
	go func() {
		cmd.Wait()
		c.events <- cmd.ProcessState.Sys().(syscall.WaitStatus)
		for !c.isEmpty() {
			time.Sleep(20 * time.Millisecond)
		}
		close(c.gone)
	}()
	return c, nil
}

// openJob creates the job object. Child processes do not inherit the handle.
func (c *child) openJob() error {
	const (
		extendedLimits = 9
		killOnJobClose = 0x2000
	)
	var limits struct { // JOBOBJECT_EXTENDED_LIMIT_INFORMATION
		_     [2]int64
		flags uint32
		_     [2]uintptr
		_     uint32
		_     uintptr
		_     [2]uint32
		_     [8 - unsafe.Sizeof(uintptr(0))]byte
		_     [6]uint64
		_     [4]uintptr
	}
	limits.flags = killOnJobClose
	var err error
	if c.job, _, err = createJobObject.Call(0, 0); c.job == 0 {
		return os.NewSyscallError("CreateJobObject", err)
	}
	ok, _, err := setInformationJobObject.Call(c.job, extendedLimits, uintptr(unsafe.Pointer(&limits)), unsafe.Sizeof(limits))
	if ok == 0 {
		return os.NewSyscallError("SetInformationJobObject", err)
	}
	return nil
}

// resume puts the command into the job object, and then lets the command run.
func (c *child) resume() error {
	const setQuotaTerminateAndSuspend = 0x100 | 0x1 | 0x800
	process, err := syscall.OpenProcess(setQuotaTerminateAndSuspend, false, uint32(c.pid))
	if err != nil {
		return os.NewSyscallError("OpenProcess", err)
	}
	defer syscall.CloseHandle(process)
	if ok, _, err := assignProcessToJobObject.Call(c.job, uintptr(process)); ok == 0 {
		return os.NewSyscallError("AssignProcessToJobObject", err)
	}
	if status, _, _ := ntResumeProcess.Call(uintptr(process)); status != 0 {
		return os.NewSyscallError("NtResumeProcess", syscall.Errno(status))
	}
	return nil
}

// forward does nothing, because the console sends its events to the command as well.
func (c *child) forward(syscall.Signal) {}

// goesOn returns true, because a process on Windows cannot be stopped by a signal.
func (c *child) goesOn(syscall.Signal) bool { return true }

// The method end sends Ctrl-Break to the process group of this process. This asks the command to end. This process ignores Ctrl-Break.
func (c *child) end() { generateConsoleCtrlEvent.Call(ctrlBreak, uintptr(os.Getpid())) }

// kill ends all processes in the job object, and returns when none is left. If that takes long, kill calls resisted once.
func (c *child) kill(resisted func(pids []int)) {
	const status = exitSignal + int(syscall.SIGKILL)
	for begun := time.Now(); ; {
		terminateJobObject.Call(c.job, uintptr(status))
		select {
		case <-c.gone:
			return
		case <-time.After(100 * time.Millisecond):
		}
		if resisted != nil && time.Since(begun) > time.Second {
			resisted(c.left())
			resisted = nil
		}
	}
}

// The method close closes the handle of the job object, which is empty.
func (c *child) close() { syscall.CloseHandle(syscall.Handle(c.job)) }

// A processList is a JOBOBJECT_BASIC_PROCESS_ID_LIST.
type processList struct {
	assigned, listed uint32
	pids             [256]uintptr
}

// The method list fills processes with the remaining processes. If processes has too little space, or the remaining processes are not
// known, list returns false.
func (c *child) list(processes *processList) bool {
	const processIDs = 3
	ok, _, _ := queryInformationJobObject.Call(c.job, processIDs, uintptr(unsafe.Pointer(processes)), unsafe.Sizeof(*processes), 0)
	return ok != 0
}

func (c *child) isEmpty() bool {
	var processes processList
	return c.list(&processes) && processes.assigned == 0
}

// left returns the remaining processes, or the first of them.
func (c *child) left() (pids []int) {
	var processes processList
	c.list(&processes)
	for _, pid := range processes.pids[:processes.listed] {
		pids = append(pids, int(pid))
	}
	return pids
}

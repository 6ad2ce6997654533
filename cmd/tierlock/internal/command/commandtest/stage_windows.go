package commandtest

import (
	"errors"
	"net"
	"os"
	"os/signal"
	"syscall"
	"testing"
	"unsafe"
)

// catch returns the signals that a command reports. The signal os.Interrupt stands for Ctrl-C and Ctrl-Break.
func catch(stubborn bool) <-chan os.Signal {
	caught := make(chan os.Signal, 16)
	if stubborn {
		signal.Notify(caught, os.Interrupt)
	}
	return caught
}

// newRoom returns the name of a mutex of Windows.
func newRoom(_ *testing.T, addr net.Addr) string { return "tierlock-" + addr.String() }

// occupy takes the kernel lock that room names, and keeps it until this process ends. It reports whether no other process had the lock.
func occupy(room string) bool {
	name, err := syscall.UTF16PtrFromString(room)
	if err != nil {
		panic(err)
	}
	mutex, _, err := syscall.NewLazyDLL("kernel32.dll").NewProc("CreateMutexW").Call(0, 0, uintptr(unsafe.Pointer(name)))
	if mutex == 0 {
		panic(err)
	}
	return !errors.Is(err, syscall.ERROR_ALREADY_EXISTS)
}

// apart() makes a process start without the console, in a separate process group.
func apart() *syscall.SysProcAttr {
	const detached = 0x8
	return &syscall.SysProcAttr{CreationFlags: detached | syscall.CREATE_NEW_PROCESS_GROUP}
}

// ChildOf returns a child of a process. It returns 0 if the process has none. If a child is older than its parent, it belongs to an earlier
// process with the same number, and does not count.
func ChildOf(parent int) int {
	snapshot, err := syscall.CreateToolhelp32Snapshot(syscall.TH32CS_SNAPPROCESS, 0)
	if err != nil {
		panic(err)
	}
	defer syscall.CloseHandle(snapshot)
	entry := syscall.ProcessEntry32{Size: uint32(unsafe.Sizeof(syscall.ProcessEntry32{}))}
	for err = syscall.Process32First(snapshot, &entry); err == nil; err = syscall.Process32Next(snapshot, &entry) {
		if entry.ParentProcessID == uint32(parent) && begun(entry.ProcessID) >= begun(uint32(parent)) {
			return int(entry.ProcessID)
		}
	}
	return 0
}

// begun returns the time at which a process was started. It returns 0 if the process does not exist.
func begun(pid uint32) int64 {
	const queryLimitedInformation = 0x1000
	process, err := syscall.OpenProcess(queryLimitedInformation, false, pid)
	if err != nil {
		return 0
	}
	defer syscall.CloseHandle(process)
	var created, exited, kernel, user syscall.Filetime
	if syscall.GetProcessTimes(process, &created, &exited, &kernel, &user) != nil {
		return 0
	}
	return created.Nanoseconds()
}

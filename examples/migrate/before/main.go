// Before is a program that counts in a file under a zk.Lock, with many goroutines.
//
//	before host:2181 file turns
package main

import (
	"errors"
	"fmt"
	"log"
	"os"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/go-zookeeper/zk"
)

const goroutines = 10

// count acquires the lock again and again, and each time adds one to the number in the file.
func count(conn *zk.Conn, file string, turns int) error {
	errs := make([]error, goroutines)
	var wg sync.WaitGroup
	for g := range errs {
		wg.Go(func() {
			lock := zk.NewLock(conn, "/migrate/counter", zk.WorldACL(zk.PermAll))
			for range turns {
				if err := lock.Lock(); err != nil {
					errs[g] = err
					return
				}
				errs[g] = errors.Join(errs[g], increment(file), lock.Unlock())
			}
		})
	}
	wg.Wait()
	return errors.Join(errs...)
}

// increment adds one to the number in the file. If another goroutine or process did this at the same time, one addition would be lost.
func increment(file string) error {
	text, err := os.ReadFile(file)
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		return err
	}
	n, _ := strconv.Atoi(strings.TrimSpace(string(text))) // 0 if the file does not exist
	return os.WriteFile(file, fmt.Appendln(nil, n+1), 0o600)
}

func main() {
	if len(os.Args) != 4 {
		log.Fatal("want servers, file, turns")
	}
	turns, err := strconv.Atoi(os.Args[3])
	if err != nil {
		log.Fatal(err)
	}
	conn, _, err := zk.Connect(strings.Split(os.Args[1], ","), 10*time.Second, zk.WithLogInfo(false))
	if err != nil {
		log.Fatal(err)
	}
	err = count(conn, os.Args[2], turns)
	conn.Close()
	if err != nil {
		log.Fatal(err)
	}
}

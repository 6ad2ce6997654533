package tier_test

import (
	"context"
	"errors"
	"fmt"
	"strconv"

	"github.com/tierlock/tierlock/memlock"
	"github.com/tierlock/tierlock/tier"
)

// A long job saves how far it has got. The next holder continues from there, in any process.
func ExampleHold_Save() {
	ctx := context.Background()
	locks, err := memlock.NewServer().Connect()
	if err != nil {
		panic(err)
	}
	defer locks.Close()
	job := locks.Mutex("/jobs/import")
	importPages := func(most int) error {
		hold, err := job.Acquire(ctx)
		if err != nil {
			return err
		}
		defer hold.Release()
		var last tier.Value
		last, err = job.Load(ctx)
		if err != nil && !errors.Is(err, tier.ErrNoValue) {
			return err
		}
		page, _ := strconv.Atoi(string(last.Data)) // 0 if nothing was saved
		for range most {
			page++
			fmt.Println("import page", page)
			if err := hold.Save(ctx, []byte(strconv.Itoa(page))); err != nil { // at most 16 KiB
				return err
			}
		}
		return nil
	}
	fmt.Println(importPages(2), importPages(1))
	// Output:
	// import page 1
	// import page 2
	// import page 3
	// <nil> <nil>
}

// A number that all processes share. Reading and saving it under the lock makes each number come once.
func ExampleMutex_Load() {
	ctx := context.Background()
	locks, err := memlock.NewServer().Connect()
	if err != nil {
		panic(err)
	}
	defer locks.Close()
	invoices := locks.Mutex("/invoices")
	next := func() (number int, err error) {
		err = invoices.Do(ctx, func(ctx context.Context) error {
			last, err := invoices.Load(ctx)
			if err != nil && !errors.Is(err, tier.ErrNoValue) {
				return err
			}
			number, _ = strconv.Atoi(string(last.Data)) // 0 if nothing was saved
			number++
			return tier.HoldFrom(ctx, invoices).Save(ctx, []byte(strconv.Itoa(number)))
		})
		return number, err
	}
	for range 3 {
		fmt.Println(next())
	}
	// Output:
	// 1 <nil>
	// 2 <nil>
	// 3 <nil>
}

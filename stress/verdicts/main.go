// Verdicts tests tierlock and its peers under the same faults, and writes docs/verdicts.md: see package verdict. It is a module of its
// own, outside of go.work, since client-go comes with all of Kubernetes' types.
//
//	GOWORK=off go run . -only redsync/cut
package main

import (
	"os"

	"github.com/tierlock/tierlock/stress/internal/store"
	"github.com/tierlock/tierlock/stress/internal/verdict"
)

func main() {
	const source = "[package leaderelection](https://pkg.go.dev/k8s.io/client-go/tools/leaderelection)"
	s := verdict.Subject{
		Name: "client-go", Title: "client-go leaderelection", Module: "k8s.io/client-go", Store: store.Etcd, Dial: leader{}.dial,
		Lease: "`LeaseDuration`, `RenewDeadline` and `RetryPeriod` of 5, 3.3 and 0.67 s; 15, 10 and 2 s in Kubernetes",
		Tells: "the context of `OnStartedLeading`, and `IsLeader`. The record is a key of etcd, as in Kubernetes",
		Limits: []verdict.Limit{{
			Text:   "This implementation does not guarantee that only one client is acting as a leader (a.k.a. fencing).",
			Source: source,
		}},
	}
	releasing := s
	releasing.Name, releasing.Title = "client-go-release", "client-go, `ReleaseOnCancel`"
	releasing.Dial = leader{releaseOnCancel: true}.dial
	releasing.Limits = []verdict.Limit{{
		Text: "If you set this to true, you must ensure all code guarded by this lease has successfully completed prior to cancelling the " +
			"context, or you may have two processes simultaneously acting on the critical path.",
		Source: source,
	}}
	os.Exit(verdict.Main(s, releasing))
}

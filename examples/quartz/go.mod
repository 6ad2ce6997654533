module github.com/tierlock/tierlock/examples/quartz

go 1.25.0

require (
	github.com/reugn/go-quartz v0.15.2
	github.com/tierlock/tierlock v0.0.0
)

require (
	github.com/cenkalti/backoff/v4 v4.3.0 // indirect
	github.com/go-zookeeper/zk v1.0.4 // indirect
	golang.org/x/sync v0.16.0 // indirect
)

replace github.com/tierlock/tierlock => ../..

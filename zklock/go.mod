module github.com/fencelock/fencelock/zklock

go 1.25

require (
	github.com/fencelock/fencelock v0.0.0
	github.com/go-zookeeper/zk v1.0.4
)

replace github.com/fencelock/fencelock => ..

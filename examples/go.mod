module github.com/fencelock/fencelock/examples

go 1.25

require github.com/fencelock/fencelock v0.0.0

replace github.com/fencelock/fencelock => ..

replace github.com/fencelock/fencelock/redislock => ../redislock

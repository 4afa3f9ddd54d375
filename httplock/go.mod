module github.com/fencelock/fencelock/httplock

go 1.25.0

require (
	github.com/DataDog/datadog-agent/pkg/template v0.80.0
	github.com/fencelock/fencelock v0.0.0
)

replace github.com/fencelock/fencelock => ..

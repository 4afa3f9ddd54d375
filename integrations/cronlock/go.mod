module github.com/fencelock/fencelock/integrations/cronlock

go 1.25

require github.com/fencelock/fencelock v0.0.0

require github.com/robfig/cron/v3 v3.0.1

replace github.com/fencelock/fencelock => ../..

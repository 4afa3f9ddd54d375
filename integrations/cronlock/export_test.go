package cronlock

var Tick = tick

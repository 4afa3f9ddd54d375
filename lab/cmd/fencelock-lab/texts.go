package main

import (
	"github.com/fencelock/fencelock/internal/history"
	"github.com/fencelock/fencelock/lab"
)

// texts are what the lab says beside the experiments.
var texts = map[string]lab.Text{
	"noRedis": {
		EN: "the lab plays on a real Redis, and redis-server is not installed; on Debian and Ubuntu: apt-get " +
			"install redis-server; on macOS: brew install redis; elsewhere see " +
			"https://redis.io/docs/latest/operate/oss_and_stack/install/",
		ZH: "实验要用真的 Redis，但没有安装 redis-server；Debian、Ubuntu：apt-get install redis-server；macOS：brew install redis；" +
			"其他系统见 https://redis.io/docs/latest/operate/oss_and_stack/install/",
	},
	"starting": {
		EN: "starting a redis-server for this lab on loopback ports, in %s; it ends with the lab, and no store of " +
			"yours is touched",
		ZH: "为实验启动单独的 redis-server（本机回环端口，目录 %s）；实验结束就关掉，不碰你的任何存储",
	},
	"wrong": {
		EN: "not everything behaved as the text says: scheme %s; play it again, and if it stays so, please report it",
		ZH: "有的结果和文字说的不一样：方案 %s；再运行一次，如果还是这样，请报告",
	},
	"list": {
		EN: "Play one with fencelock lab N, all with --all. Each is played against fencelock as well.",
		ZH: "用 fencelock lab N 演示一个，--all 演示全部。每个都会用同样的步骤再考一遍 fencelock。",
	},
	"scheme":   {EN: "SCHEME", ZH: "方案"},
	"verdict":  {EN: "VERDICT", ZH: "结论"},
	"taughtAt": {EN: "TAUGHT IN", ZH: "出处"},
	"taught":   {EN: "Taught in: ", ZH: "出处："},
	"clock": {
		EN: "Time in the scheme is moved forward, not waited for. fencelock's leases that must end in real time " +
			"last 0.4 s or 1 s here.",
		ZH: "方案里的时间是直接拨快的，不用真等。fencelock 这边要真实到期的租约，这里只有 0.4 秒或 1 秒。",
	},
	"a":      {EN: "client A", ZH: "客户端 A"},
	"b":      {EN: "client B", ZH: "客户端 B"},
	"holds":  {EN: "the store holds", ZH: "存储里有"},
	"theirs": {EN: "As it is taught", ZH: "教程的写法"},
	"ours":   {EN: "The same schedule against fencelock", ZH: "同样的步骤，换成 fencelock"},
	"broke":  {EN: "BROKEN ", ZH: "出事 "},
	"why":    {EN: "Why: ", ZH: "原因："},
	"cure":   {EN: "What prevents it: ", ZH: "如何避免："},
	"note":   {EN: "What is compared: ", ZH: "比较范围："},
	"asTold": {EN: "As told: the scheme breaks %s, fencelock keeps what is judged.", ZH: "与文字一致：该方案破坏了 %s，" +
		"fencelock 守住了所判的规则。"},
	"notTold": {EN: "NOT as told: the scheme broke %s (told: %s), fencelock broke %s.", ZH: "与文字不一致：该方案破坏了 %s（应为 " +
		"%s），fencelock 破坏了 %s。"},
	"nothing": {EN: "nothing", ZH: "无"},
	"empty":   {EN: "–", ZH: "–"},
}

func text(name string, l lab.Lang) string { return texts[name].In(l) }

// ruleTexts say in a few words what it means that a rule is broken.
var ruleTexts = map[history.Rule]lab.Text{
	history.Exclusion:  {EN: "two are inside at once", ZH: "两个同时持有"},
	history.Tokens:     {EN: "a token comes twice", ZH: "token 重复"},
	history.Fence:      {EN: "an old write is accepted after a new one", ZH: "旧的写入盖掉新的"},
	history.Stuck:      {EN: "stuck for ever", ZH: "永远卡死"},
	history.WakeUp:     {EN: "nobody wakes the waiter", ZH: "等待者没人叫醒"},
	history.Reentrancy: {EN: "an entry is not counted", ZH: "重入少数了一次"},
	history.ReadWrite:  {EN: "a writer beside a reader", ZH: "读者还在，写者进来了"},
	history.Semaphore:  {EN: "more permits than there are", ZH: "发出的许可超过总数"},
}

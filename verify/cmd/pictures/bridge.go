package main

// drawBridge: programs of three deployments, and the stores that each of them locks in.
func drawBridge(c *canvas) {
	const left, deploy2, gone1, deploy3, gone2, right = 120, 190, 300, 400, 510, 620
	c.bold(16, 96, "start", c.ink, "old store")
	c.bold(16, 176, "start", c.ink, "new store")
	bar := func(x, end, y int, colour, text string) {
		c.box(x, y, end-x, 28, c.band, colour)
		c.text((x+end)/2, y+20, "middle", colour, text)
	}
	for i, x := range []int{deploy2, gone1, deploy3, gone2} {
		c.moment(x, 44, x, 224)
		c.sized(x, 36, 14, "middle", c.muted, []string{"deploy 2", "1 is gone", "deploy 3", "2 is gone"}[i])
	}
	bar(left, gone1, 60, c.muted, "1: old")
	bar(deploy2, gone2, 94, c.holds, "2: locked first")
	bar(deploy2, gone2, 140, c.holds, "2: locked second")
	bar(deploy3, right, 174, c.muted, "3: new")
	c.line(left, 224, right+20, 224, c.ink)
	c.sized(left, 246, 14, "start", c.muted, "time")
	c.sized(330, 274, 14, "middle", c.muted,
		"Deployments that overlap share a store, so their programs exclude one another.")
}

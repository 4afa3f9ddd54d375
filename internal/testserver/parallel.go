package testserver

import "flag"

// Parallel lets n tests of the calling package run at once, unless -parallel says otherwise.
// Tests of servers wait most of the time and need no processor for that. TestMain calls it.
func Parallel(n string) {
	flag.Parse()
	given := false
	flag.Visit(func(f *flag.Flag) { given = given || f.Name == "test.parallel" })
	if given {
		return
	}
	if err := flag.Set("test.parallel", n); err != nil {
		panic(err)
	}
}

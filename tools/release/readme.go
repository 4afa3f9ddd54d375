package main

import (
	"fmt"
	"regexp"
	"strings"
)

// readmeProgram makes a program of the code in the README, which is in three pieces:
// imports, one client with Do, and a function ship that holds a lock over several calls.
// The rest of the program is what the README takes for granted.
func readmeProgram(readme string) (string, error) {
	var pieces []string
	for _, block := range regexp.MustCompile("(?ms)^```go\n(.*?)^```").FindAllStringSubmatch(readme, -1) {
		pieces = append(pieces, block[1])
	}
	if len(pieces) != 3 || !strings.HasPrefix(pieces[0], "import (") || !strings.Contains(pieces[2], "func ship(") {
		return "", fmt.Errorf("README.md has %d blocks of Go; expected are imports, Do and ship: see readme.go",
			len(pieces))
	}
	return strings.Join([]string{
		"package main", pieces[0], readmeScaffold, readmeUse + pieces[1] + readmeShip, pieces[2],
	}, "\n"), nil
}

const readmeUse = `
func use(ctx context.Context, rdb *redis.Client) error {
`

const readmeShip = `
	if err != nil {
		return err
	}
	return ship(ctx, client)
}
`

const readmeScaffold = `
import (
	"context"
	"errors"
	"fmt"
	"os"
	"time"
)

func main() {
	ctx := context.Background()
	o, err := redis.ParseURL(os.Args[1])
	check(err)
	check(use(ctx, redis.NewClient(o)))
}

func check(err error) {
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func report(_ context.Context, token any) error {
	fmt.Println("reported under token", token)
	return nil
}

func work(_ context.Context, token any) error {
	fmt.Println("worked under token", token)
	return nil
}
`

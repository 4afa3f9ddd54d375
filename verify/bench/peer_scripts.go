package bench

import (
	"context"
	"embed"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"
)

//go:embed script/*.lua
var bareFiles embed.FS

var (
	bareEnter = bareScript("enter")
	bareLeave = bareScript("leave")
	bareAgain = bareScript("again")
)

func bareScript(name string) *redis.Script {
	text, err := bareFiles.ReadFile("script/" + name + ".lua")
	if err != nil {
		panic(err)
	}
	return redis.NewScript(string(text))
}

// bareScripts is the limit of a lock on Redis that has a lease and a token by the
// server's clock: two scripts that do what these two need and nothing else, with as many
// keys and arguments as long as those of fencelock. They keep no line, so nobody can wait;
// a call that is sent twice is done twice; all its locks have one id.
type bareScripts struct {
	cmds  redis.Cmdable
	enter []any // arguments
	leave []any
	close func() error
}

const bareID = "ABCDEFGHIJKLMNOPQRSTUVWXYZ"

func openBareScripts(e Env) (Locker, error) {
	rdb := dialGoRedis(e)
	return newBareScripts(e, rdb, rdb.Close), nil
}

// openBareScriptsPipelined opens the same on go-redis' own pipelining.
func openBareScriptsPipelined(e Env) (Locker, error) {
	pipes, done, err := dialPipelined(e)
	if err != nil {
		return nil, err
	}
	return newBareScripts(e, pipes, done), nil
}

func newBareScripts(e Env, cmds redis.Cmdable, done func() error) *bareScripts {
	// A lease, a span, capacity and weight, the channel of the process and its owner.
	claim := bareID + fmt.Sprintf("%08d%06d%05d;26:1048576 1048576 64 27 21 fencelock:@%016d%s",
		e.TTL/time.Second, e.TTL%time.Second/time.Microsecond, 63, 0, "bench@example.com/123")
	return &bareScripts{
		cmds:  cmds,
		enter: []any{claim, (e.TTL + 24*time.Hour).Milliseconds()},
		leave: []any{bareID, "12345678", int64(e.TTL / time.Second)},
		close: done,
	}
}

// bareKeys are the three keys of a lock.
func bareKeys(key string) []string {
	record := "fencelock:{" + key + "}"
	return []string{record, record + "c", record + "z"}
}

func (l *bareScripts) Do(ctx context.Context, key string, inside func(int64)) error {
	keys := bareKeys(key)
	token, err := bareToken(bareEnter.Run(ctx, l.cmds, keys, l.enter...))
	if err != nil {
		return err
	}
	inside(token)
	answer, err := bareLeave.Run(context.Background(), l.cmds, keys, l.leave...).Text()
	if err == nil && answer != "+" {
		err = errors.New("a lock that nobody else wants was lost")
	}
	return err
}

// bareToken reads what enter and again answer.
func bareToken(cmd *redis.Cmd) (int64, error) {
	answer, err := cmd.Text()
	if err != nil {
		return 0, err
	}
	if strings.HasPrefix(answer, "x") {
		return 0, errTaken
	}
	return strconv.ParseInt(answer, 10, 64)
}

func (l *bareScripts) Hold(context.Context, string) (Held, error) { return nil, errNever }
func (l *bareScripts) Close() error                               { return l.close() }

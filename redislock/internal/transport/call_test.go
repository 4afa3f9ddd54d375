package transport

import (
	"fmt"
	"testing"

	"github.com/fencelock/fencelock/internal/faultproxy"
	"github.com/fencelock/fencelock/internal/testserver"
	"github.com/redis/go-redis/v9"
)

// A caller has to know whether an earlier copy of its command may still be applied: go-redis
// sends a request again when its connection breaks, one command or a pipeline of them.
func TestRepeatsAreCounted(t *testing.T) {
	s := testserver.Redis(t)
	p := faultproxy.Start(t, s.Addr(), faultproxy.Redis)
	c := redis.NewClient(&redis.Options{Addr: p.Addr()})
	t.Cleanup(func() { c.Close() })
	if err := c.ScriptLoad(t.Context(), script.Source()).Err(); err != nil {
		t.Fatal(err)
	}
	unknown := NewScript("return {2}", 64)
	for _, n := range []int{1, 2} {
		for action, want := range map[faultproxy.Action]bool{
			faultproxy.Pass: false, faultproxy.DropRequest: true, faultproxy.DropAnswer: true, faultproxy.LateRequest: true,
		} {
			t.Run(fmt.Sprintf("%d calls, fate %d", n, action), func(t *testing.T) {
				sent := 0
				p.Handle(func(r *faultproxy.Request) faultproxy.Action {
					if r.Args()[0] != "evalsha" {
						return faultproxy.Pass
					}
					if sent++; sent > 1 {
						return faultproxy.Pass
					}
					return action
				})
				tr := New(c, Options{})
				calls := []*call{newCall(NewCommand(script, []any{"a"})), newCall(NewCommand(script, []any{"b"}))}[:n]
				for _, c := range calls {
					c.prepare(t.Context())
				}
				tr.exec(t.Context(), c, false, calls)
				for i, c := range calls {
					if answer, err := tr.result(c, 0); err != nil || c.cmd.repeated != want {
						t.Errorf("call %d: answer %v, error %v, repeated %v; want %v", i, answer, err, c.cmd.repeated, want)
					}
				}
			})
		}
	}
	p.Handle(nil)
	refused := newCall(NewCommand(unknown, []any{"a"}))
	refused.prepare(t.Context())
	New(c, Options{}).exec(t.Context(), c, false, []*call{refused})
	if err := refused.err(); !unknownScript(err) || refused.cmd.repeated {
		t.Errorf("a script that the server does not know: error %v, repeated %v; want NOSCRIPT, and not repeated",
			err, refused.cmd.repeated)
	}
}

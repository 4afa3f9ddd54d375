package drivertest

import (
	"context"
	"time"

	"github.com/fencelock/fencelock/driver"
	"github.com/fencelock/fencelock/internal/driverutil"
)

// inLine is a claim that a view has sent: its ticket, and when the call was sent that started its
// lease, and answered. What is named in the third person must succeed.
type inLine struct {
	driver.Ticket
	at             *view
	sent, answered time.Time
}

// leave leaves the line, as e says.
func (x *inLine) leave(e ...driver.Exit) error {
	return x.at.Leave(x.at.w.ctx, x.Ticket, append(e, driver.Exit{})[0])
}

func (x *inLine) leaves(e ...driver.Exit) *inLine { return x.must("Leave", x.leave(e...)) }
func (x *inLine) renew() error                    { return x.at.renew(x)[0] }
func (x *inLine) renews()                         { x.must("Renew", x.renew()) }

// must ends the law unless err is nil.
func (x *inLine) must(what string, err error) *inLine {
	x.at.w.must(what, err)
	return x
}

// lingers leaves, and keeps the place taken for d.
func (x *inLine) lingers(d time.Duration) *inLine {
	return x.lingersAfter(func() { x.leaves(driver.Exit{Linger: d}) }, d)
}

// brokenFor is ended by an operator, and its place stays taken for d.
func (x *inLine) brokenFor(d time.Duration, v *view, reason string) *inLine {
	how := driver.Break{Reason: reason, Delay: d}
	return x.lingersAfter(func() { x.must("Break", v.Break(x.at.w.ctx, x.Key, x.Token, how)) }, d)
}

// lingersAfter calls end, after which the claim's times are those of lingering for d.
func (x *inLine) lingersAfter(end func(), d time.Duration) *inLine {
	x.sent = time.Now()
	end()
	x.answered, x.TTL, x.Left = time.Now(), d, d
	return x
}

// await calls Await once.
func (x *inLine) await() error {
	_, err := x.at.Await(x.at.w.ctx, x.Ticket)
	return err
}

// awaitGrant calls Await until the claim is granted or an error says otherwise.
func (x *inLine) awaitGrant(ctx context.Context) (driver.Ticket, error) {
	w, t := x.at.w, x.Ticket
	for range mostCalls {
		now, err := x.at.Await(ctx, t)
		if err != nil {
			return t, err
		}
		w.sound(t.Claim, now)
		w.wrongIf(now.Token != t.Token && !(w.conf.grows && !t.Granted && now.Token > t.Token),
			"the token after Await: got %d; want %d", now.Token, t.Token)
		if now.Granted {
			return now, nil
		}
		t = now
	}
	return t, errSpin
}

// granted waits until the claim is granted.
func (x *inLine) granted() *inLine {
	w := x.at.w
	ctx, cancel := context.WithTimeout(w.ctx, patience)
	defer cancel()
	now, err := x.awaitGrant(ctx)
	if err != nil {
		w.t.Fatalf("a claim on %q is not granted, %d ahead: %v; line %+v", x.Key, now.Ahead, err, x.at.line(x.Key))
	}
	x.Ticket = now
	return x
}

// standing looks for the claim through another view.
func (x *inLine) standing() (s driver.Standing, ok bool) {
	for _, s := range x.at.other().line(x.Key).Claims {
		if s.ID == driverutil.ShortID(x.ID) {
			return s, true
		}
	}
	return s, false
}

// stillThere must find the claim in line.
func (x *inLine) stillThere() driver.Standing {
	s, ok := x.standing()
	x.at.w.wrongIf(!ok, "a claim on %q is not in line any more", x.Key)
	return s
}

func (x *inLine) stillWaits() { same(x.at.w, "granted, as shown", x.stillThere().Granted, false) }
func (x *inLine) stillHolds() { same(x.at.w, "granted, as shown", x.stillThere().Granted, true) }

// stillSpans must find the claim in line with its tokens.
func (x *inLine) stillSpans() {
	s := x.stillThere()
	same(x.at.w, "token and span as shown", [2]int64{s.Token, s.Span}, [2]int64{x.Token, x.Span})
}

// stillLives must find the claim in line, as long as its times prove that it has to be.
func (x *inLine) stillLives() {
	_, ok := x.standing()
	now := time.Now()
	x.at.w.inTime("the look", now, x.ends())
	x.at.w.wrongIf(!ok, "a claim is gone %v after its lease was promised for %v", now.Sub(x.sent), x.Left)
}

// brokenBy is ended by an operator.
func (x *inLine) brokenBy(v *view, reason string) *inLine {
	return x.must("Break", v.Break(x.at.w.ctx, x.Key, x.Token, driver.Break{Reason: reason}))
}

// brokenAtOnce is ended by an operator, also if it lingers.
func (x *inLine) brokenAtOnce(v *view, reason string) *inLine {
	return x.must("Break", v.Break(x.at.w.ctx, x.Key, x.Token, driver.Break{Reason: reason, Delay: -1}))
}

// follows must have a token above all of another claim's.
func (x *inLine) follows(before *inLine) {
	x.at.w.wrongIf(x.Token < before.Token+before.Span,
		"token %d was drawn within or before the span of %d tokens from %d", x.Token, before.Span, before.Token)
}

// ends is until when the store keeps the claim for certain.
func (x *inLine) ends() time.Time { return x.sent.Add(x.Left) }

// over is when the lease has ended for certain.
func (x *inLine) over() time.Time { return x.answered.Add(x.TTL + x.at.w.conf.lag) }

// expires waits until the lease has ended.
func (x *inLine) expires() *inLine {
	x.at.w.until(x.over())
	return x
}

// crashes ends the view of the claim as kill -9 would, or else nobody renews.
func (x *inLine) crashes() *inLine {
	if crash := x.at.w.conf.crash; crash != nil {
		crash(x.at.Backend)
	}
	return x
}

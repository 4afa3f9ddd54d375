package elect_test

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/fencelock/fencelock"
	"github.com/fencelock/fencelock/driver"
	"github.com/fencelock/fencelock/drivertest/faulty"
	"github.com/fencelock/fencelock/drivertest/steps"
	"github.com/fencelock/fencelock/elect"
	"github.com/fencelock/fencelock/fence"
	"github.com/fencelock/fencelock/internal/testclient"
	"github.com/fencelock/fencelock/memlock"
)

const ttl = 30 * time.Second

// bubble runs a test in virtual time on an empty store.
func bubble(t *testing.T, f func(t *testing.T, s *memlock.Store)) {
	synctest.Test(t, func(t *testing.T) { f(t, memlock.New()) })
}

// process is one that campaigns, with a Client of its own.
type process struct {
	*elect.Election
	name   string
	cancel context.CancelCauseFunc
	end    chan error
}

var errShutdown = errors.New("the program ends")

// campaign starts a process whose f waits for the end of its context.
func campaign(t *testing.T, b driver.Backend, name string, o *elect.Options) *process {
	t.Helper()
	return campaignWith(t, b, name, o, func(ctx context.Context, _ *fencelock.Lease) error {
		<-ctx.Done()
		return ctx.Err()
	})
}

func campaignWith(t *testing.T, b driver.Backend, name string, o *elect.Options, f func(context.Context, *fencelock.Lease) error) *process {
	t.Helper()
	c := testclient.New(t, b, &fencelock.Options{Owner: name, TTL: ttl})
	ctx, cancel := context.WithCancelCause(context.Background())
	p := &process{Election: elect.New(c, "reports", o), name: name, cancel: cancel, end: make(chan error, 1)}
	go func() { p.end <- p.Run(ctx, f) }()
	t.Cleanup(func() {
		cancel(errShutdown)
		c.Close()
	})
	synctest.Wait()
	return p
}

func wantLeader(t *testing.T, want *process, all ...*process) {
	t.Helper()
	synctest.Wait()
	for _, p := range all {
		steps.Same(t, p.name+" leads", p.Term() != nil, p == want)
		l, err := p.Leader(t.Context())
		if err != nil || want != nil && l.Owner != want.name || want == nil && l != (elect.Leader{}) {
			t.Errorf("%s says that %+v leads, %v", p.name, l, err)
		}
		if want != nil && l.Token != want.Term().Token() {
			t.Errorf("%s says that the token is %v, want %v", p.name, l.Token, want.Term().Token())
		}
	}
}

// Who steps down hands over at once, to the one that waits longest.
func TestShutdownHandsOverAtOnce(t *testing.T) {
	bubble(t, func(t *testing.T, s *memlock.Store) {
		a, b, c := campaign(t, s, "a", nil), campaign(t, s, "b", nil), campaign(t, s, "c", nil)
		wantLeader(t, a, a, b, c)
		first := a.Term().Token()
		start := time.Now()
		a.cancel(errShutdown)
		steps.Well(t, "Run", <-a.end)
		wantLeader(t, b, a, b, c)
		steps.Same(t, "the hand-over took", time.Since(start), 0)
		steps.Rises(t, first, b.Term().Token())
		b.cancel(errShutdown)
		wantLeader(t, c, a, b, c)
		d := campaign(t, s, "d", nil)
		d.cancel(errShutdown)
		steps.Well(t, "Run of one that only campaigned", <-d.end)
		c.cancel(errShutdown)
		wantLeader(t, nil, a, b, c)
	})
}

// A leader that is cut off learns it by its own clock, before the next one leads,
// and stands behind the others when it is back.
func TestLeaderThatIsCutOffIsReplacedWithinItsLease(t *testing.T) {
	bubble(t, func(t *testing.T, s *memlock.Store) {
		net := faulty.New(s, 1, faulty.Options{})
		var ended []error
		a := campaign(t, net, "a", &elect.Options{TermEnded: func(_ fence.Token, lost, _ error) { ended = append(ended, lost) }})
		b := campaign(t, s, "b", nil)
		wantLeader(t, a, b)
		time.Sleep(time.Hour) // it is renewed for as long as it takes
		wantLeader(t, a, b)

		net.Pause()
		start := time.Now()
		for b.Term() == nil {
			time.Sleep(100 * time.Millisecond)
			if a.Term() != nil && b.Term() != nil {
				t.Fatal("two lead")
			}
			if time.Since(start) > ttl+time.Second {
				t.Fatalf("nobody leads %v after the leader was cut off", time.Since(start))
			}
		}
		synctest.Wait()
		if len(ended) != 1 || !errors.Is(ended[0], fencelock.ErrExpired) {
			t.Errorf("TermEnded was told %v", ended)
		}
		net.Resume()
		time.Sleep(ttl) // its campaign goes on
		wantLeader(t, b, a, b)
		b.cancel(errShutdown)
		<-b.end
		time.Sleep(time.Second)
		wantLeader(t, a, a, b)
	})
}

// breakLeader ends the leadership, and waits for a TTL.
func breakLeader(t *testing.T, s *memlock.Store, how fencelock.Break) {
	t.Helper()
	operator := testclient.New(t, s, nil)
	defer operator.Close()
	l, err := operator.Line(t.Context(), "reports")
	steps.Must(t, err)
	steps.Must(t, operator.Break(t.Context(), "reports", l.Claims[0].Token, how))
	time.Sleep(ttl)
}

// A broken leader campaigns again, behind the others.
func TestBrokenLeaderCampaignsAgain(t *testing.T) {
	bubble(t, func(t *testing.T, s *memlock.Store) {
		a, b := campaign(t, s, "a", nil), campaign(t, s, "b", nil)
		for _, next := range []*process{b, a, b} {
			breakLeader(t, s, fencelock.Break{Reason: "it is the other's turn"})
			wantLeader(t, next, a, b)
		}
	})
}

// A leader under notice steps down in time, without a loss, and campaigns again, behind the others.
func TestLeaderUnderNoticeStepsDown(t *testing.T) {
	bubble(t, func(t *testing.T, s *memlock.Store) {
		var ended []any
		o := &elect.Options{TermEnded: func(_ fence.Token, lost, err error) { ended = append(ended, lost, err) }}
		a := campaignWith(t, s, "a", o, func(ctx context.Context, l *fencelock.Lease) error {
			<-ctx.Done()
			time.Sleep(time.Second) // finishes its work, as the leader
			steps.Well(t, "the leadership was lost", l.Err())
			return ctx.Err()
		})
		b := campaign(t, s, "b", nil)
		for _, next := range []*process{b, a} {
			breakLeader(t, s, fencelock.Break{Reason: "it is the other's turn", Notice: time.Hour})
			wantLeader(t, next, a, b)
		}
		if fmt.Sprint(ended) != fmt.Sprint([]any{nil, nil}) {
			t.Errorf("TermEnded was told %v", ended)
		}
		a.cancel(errShutdown)
		<-a.end
	})
}

func TestRunReturnsWhatFReturns(t *testing.T) {
	bubble(t, func(t *testing.T, s *memlock.Store) {
		broken := errors.New("the disk is full")
		for _, want := range []error{nil, broken} {
			var told []any
			o := &elect.Options{TermEnded: func(tok fence.Token, lost, err error) { told = append(told, tok > 0, lost, err) }}
			p := campaignWith(t, s, "a", o, func(context.Context, *fencelock.Lease) error { return want })
			steps.Same(t, "Run", <-p.end, want)
			if fmt.Sprint(told) != fmt.Sprint([]any{true, nil, want}) {
				t.Errorf("TermEnded was told %v", told)
			}
			wantLeader(t, nil, p)
		}
	})
}

// A leadership that is lost while the program ends is no orderly hand-over.
func TestLossWhileSteppingDownIsReported(t *testing.T) {
	bubble(t, func(t *testing.T, s *memlock.Store) {
		a := campaignWith(t, s, "a", nil, func(ctx context.Context, l *fencelock.Lease) error {
			<-ctx.Done()
			s.Flush()
			time.Sleep(ttl)
			return ctx.Err()
		})
		a.cancel(errShutdown)
		steps.Is(t, "Run", <-a.end, fencelock.ErrLost)
	})
}

// f finishes before the next one leads, and the end of ctx does not hide its error.
func TestLeaderLeadsUntilFHasReturned(t *testing.T) {
	bubble(t, func(t *testing.T, s *memlock.Store) {
		unfinished := errors.New("half of it is done")
		a := campaignWith(t, s, "a", nil, func(ctx context.Context, l *fencelock.Lease) error {
			<-ctx.Done()
			time.Sleep(10 * ttl)
			steps.Well(t, "it leads no more", l.Err())
			return unfinished
		})
		b := campaign(t, s, "b", nil)
		a.cancel(errShutdown)
		time.Sleep(9 * ttl)
		wantLeader(t, a, a, b)
		steps.Same(t, "Run", <-a.end, unfinished)
		wantLeader(t, b, a, b)
	})
}

func TestPanicOfFGoesOnAndStepsDown(t *testing.T) {
	bubble(t, func(t *testing.T, s *memlock.Store) {
		c := testclient.New(t, s, nil)
		defer c.Close()
		e := elect.New(c, "reports", nil)
		func() {
			defer func() {
				if recover() != "at the disco" {
					t.Error("the panic was lost")
				}
			}()
			_ = e.Run(t.Context(), func(context.Context, *fencelock.Lease) error { panic("at the disco") })
		}()
		if l, err := e.Leader(t.Context()); err != nil || l.Owner != "" {
			t.Errorf("%+v, %v", l, err)
		}
	})
}

func TestRunReturnsWhatNoWaitingMends(t *testing.T) {
	bubble(t, func(t *testing.T, s *memlock.Store) {
		campaign(t, s, "a", nil)
		c := testclient.New(t, s, nil)
		never := func(context.Context, *fencelock.Lease) error { t.Error("it leads"); return nil }
		steps.Is(t, "Run", elect.New(c, "reports", nil).Run(t.Context(), never, fencelock.Wait(time.Second)), fencelock.ErrNotAcquired)
		steps.Is(t, "Run", elect.New(c, "", nil).Run(t.Context(), never), fencelock.ErrInvalid)
		c.Close()
		steps.Is(t, "Run", elect.New(c, "reports", nil).Run(t.Context(), never), fencelock.ErrClosed)
	})
}

// With MinHold the place stays taken when the leader has stepped down. Nobody leads
// then, neither the one that has gone nor the one that waits.
func TestNobodyLeadsWhileThePlaceIsKept(t *testing.T) {
	bubble(t, func(t *testing.T, s *memlock.Store) {
		c := testclient.New(t, s, nil)
		defer c.Close()
		stepsDown := func(context.Context, *fencelock.Lease) error { return nil }
		steps.Must(t, elect.New(c, "reports", nil).Run(t.Context(), stepsDown, fencelock.MinHold(time.Hour)))
		b := campaign(t, s, "b", nil)
		wantLeader(t, nil, b)
		time.Sleep(time.Hour + time.Second)
		wantLeader(t, b, b)
	})
}

func TestObserversSeeEachLeader(t *testing.T) {
	bubble(t, func(t *testing.T, s *memlock.Store) {
		net := faulty.New(s, 1, faulty.Options{})
		c := testclient.New(t, net, nil)
		defer c.Close()
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		var seen []string
		var tokens []fence.Token
		done := make(chan struct{})
		go func() {
			defer close(done)
			for l, err := range elect.New(c, "reports", nil).Watch(ctx) {
				switch {
				case err != nil:
					if len(seen) == 0 || seen[len(seen)-1] != "error" {
						seen = append(seen, "error")
					}
				default:
					seen = append(seen, l.Owner+"/"+l.Note)
					tokens = append(tokens, l.Token)
				}
			}
		}()
		time.Sleep(2500 * time.Millisecond)
		a := campaign(t, s, "a", &elect.Options{Note: "10.0.0.1:80"})
		b := campaign(t, s, "b", &elect.Options{Note: "10.0.0.2:80"})
		time.Sleep(5 * time.Second)
		a.cancel(errShutdown)
		time.Sleep(time.Second)
		net.Set(faulty.Options{Fail: 1})
		time.Sleep(3 * time.Second)
		net.Set(faulty.Options{})
		time.Sleep(2 * time.Second)
		b.cancel(errShutdown)
		time.Sleep(2 * time.Second)
		cancel()
		<-done
		steps.Same(t, "it saw", fmt.Sprint(seen), "[/ a/10.0.0.1:80 b/10.0.0.2:80 error /]")
		steps.Rises(t, tokens[1], tokens[2])
		for range elect.New(c, "reports", nil).Watch(t.Context()) {
			break // stops it
		}
	})
}

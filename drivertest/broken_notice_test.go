package drivertest

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/fencelock/fencelock/driver"
)

// notices lets f change a Break. now describes the claim of the token, and noticed says whether it is under
// notice. With done, Break returns nil and does nothing.
func (b *broken) notices(f func(now driver.Standing, noticed bool, how *driver.Break) (done bool)) {
	b.brk = func(ctx context.Context, key string, token int64, how driver.Break) error {
		for _, s := range b.standings(key) {
			if token < s.Token || token >= s.Token+s.Span {
				continue
			}
			given := how.Notice > 0 && s.Granted && !s.Lingering
			under := fmt.Sprint("notice ", s.Token)
			if f(s, b.count(under, 0) > 0 && !s.Lingering, &how) {
				return ctx.Err()
			}
			if given {
				b.count(under, 1)
			}
		}
		return b.Member.Break(ctx, key, token, how)
	}
}

// underNotice lets f change what Renew says of a claim under notice.
func (b *broken) underNotice(f func(t driver.Ticket, notice driver.GoneError) error) {
	b.renew = func(ctx context.Context, ts []driver.Ticket) []error {
		errs := b.Member.Renew(ctx, ts)
		for i, err := range errs {
			var gone driver.GoneError
			if errors.As(err, &gone) && gone.Left > 0 {
				errs[i] = f(ts[i], gone)
			}
		}
		return errs
	}
}

// alarms lets f change what the alarm says of a claim under notice, or keep it quiet.
func (b *broken) alarms(f func(notice driver.GoneError) (driver.GoneError, bool)) {
	b.alarm = func(hear func(string, driver.GoneError)) func() {
		return b.Member.Alarm(func(id string, gone driver.GoneError) {
			ok := true
			if gone.Left > 0 {
				gone, ok = f(gone)
			}
			if ok {
				hear(id, gone)
			}
		})
	}
}

var brokenNotices = []breaker{
	{"Break forgets the notice", func(b *broken) {
		b.notices(func(_ driver.Standing, _ bool, how *driver.Break) bool {
			how.Notice = 0
			return false
		})
	}, "NoticeEndsTheClaim NoticeLetsTheHolderLeave NoticeOutlivesTheLease " +
		"NoticeIsNeverShortened NoticeGoesWithAnAdoptedClaim AlarmTellsOfTheNotice Model"},
	{"a notice is not shown", func(b *broken) { b.shows(func(s *driver.Standing) { s.Reason = "" }) },
		"NoticeIsShown Model"},
	{"a notice is shown until a lease is over", func(b *broken) {
		b.shows(func(s *driver.Standing) {
			if s.Reason != "" {
				s.Left += time.Hour
			}
		})
	}, "NoticeIsShown"},
	{"a notice never ends", func(b *broken) {
		b.notices(func(_ driver.Standing, _ bool, how *driver.Break) bool {
			how.Notice *= 10_000
			return false
		})
	}, "NoticeEndsTheClaim NoticeIsFollowedByTheDelay NoticeWakesTheNext Model"},
	{"a notice is too short", func(b *broken) {
		b.notices(func(_ driver.Standing, _ bool, how *driver.Break) bool {
			how.Notice = how.Notice * 9 / 10
			return false
		})
	}, "NoticeWakesTheNext"},
	{"the holder is not told of a notice", func(b *broken) {
		b.underNotice(func(driver.Ticket, driver.GoneError) error { return nil })
	}, "NoticeEndsTheClaim NoticeLetsTheHolderLeave NoticeOutlivesTheLease NoticeIsNeverShortened Model"},
	{"the holder is told of a notice as of its end", func(b *broken) {
		b.underNotice(func(_ driver.Ticket, gone driver.GoneError) error {
			gone.Left = 0
			return gone
		})
	}, "NoticeEndsTheClaim NoticeLetsTheHolderLeave NoticeOutlivesTheLease NoticeIsNeverShortened Model"},
	{"a notice does not say why", func(b *broken) {
		b.underNotice(func(_ driver.Ticket, gone driver.GoneError) error {
			gone.Reason = ""
			return gone
		})
	}, "NoticeEndsTheClaim NoticeLetsTheHolderLeave NoticeOutlivesTheLease NoticeGoesWithAnAdoptedClaim Model"},
	{"a notice forgets the lock-delay of the claim", func(b *broken) {
		b.notices(func(_ driver.Standing, _ bool, how *driver.Break) bool {
			if how.Notice > 0 && how.Delay == 0 {
				how.Delay = -1
			}
			return false
		})
	}, "NoticeIsFollowedByTheDelay Model"},
	{"nobody leaves under notice", func(b *broken) {
		b.leave = func(ctx context.Context, t driver.Ticket, e driver.Exit) error {
			var gone driver.GoneError
			if errors.As(b.Member.Renew(ctx, []driver.Ticket{t})[0], &gone) && gone.Left > 0 && !e.IfWaiting {
				return nil
			}
			return b.Member.Leave(ctx, t, e)
		}
	}, "NoticeLetsTheHolderLeave Model"},
	{"who leaves under notice keeps the key closed", func(b *broken) {
		b.leave = func(ctx context.Context, t driver.Ticket, e driver.Exit) error {
			var gone driver.GoneError
			if errors.As(b.Member.Renew(ctx, []driver.Ticket{t})[0], &gone) && gone.Left > 0 && !e.IfWaiting {
				e.Linger = max(e.Linger, gone.Left)
			}
			return b.Member.Leave(ctx, t, e)
		}
	}, "NoticeLetsTheHolderLeave Model"},
	{"a notice ends with the lease", func(b *broken) {
		b.notices(func(now driver.Standing, _ bool, how *driver.Break) bool {
			if how.Notice > 0 {
				how.Notice = min(how.Notice, max(now.Left, 1))
			}
			return false
		})
	}, "NoticeOutlivesTheLease Model"},
	{"a second Break shortens the delay", func(b *broken) {
		b.notices(func(_ driver.Standing, noticed bool, how *driver.Break) bool {
			if noticed && how.Notice == 0 && how.Delay > 0 {
				how.Delay = -1
			}
			return false
		})
	}, "NoticeNeverShortensTheDelay Model"},
	{"a notice keeps a claim that lingers", func(b *broken) {
		b.notices(func(now driver.Standing, _ bool, how *driver.Break) bool {
			return how.Notice > 0 && now.Lingering
		})
	}, "SecondBreakEndsTheLinger Model"},
	{"a claim under notice cannot be broken", func(b *broken) {
		b.notices(func(_ driver.Standing, noticed bool, how *driver.Break) bool {
			return noticed && how.Notice == 0 && how.Reason != "end of test"
		})
	}, "BreakWithoutNoticeEndsIt NoticeIsNeverShortened NoticeNeverShortensTheDelay NoticeGoesWithAnAdoptedClaim Model"},
	{"a waiter is not told to go", func(b *broken) {
		b.notices(func(now driver.Standing, _ bool, how *driver.Break) bool {
			return how.Notice > 0 && !now.Granted
		})
	}, "NoticeToAWaiterEndsIt Model"},
	{"a notice does not go with an adopted claim", func(b *broken) {
		adopted := ""
		b.adopts(func(_ *driver.Ticket, by *driver.Claim) func(*driver.Ticket, *error) {
			adopted = by.ID
			return nil
		})
		b.underNotice(func(t driver.Ticket, gone driver.GoneError) error {
			if t.ID == adopted {
				return nil
			}
			return gone
		})
	}, "NoticeGoesWithAnAdoptedClaim"},
	{"the alarm does not tell of a notice", func(b *broken) {
		b.alarms(func(gone driver.GoneError) (driver.GoneError, bool) { return gone, false })
	}, "AlarmTellsOfTheNotice"},
	{"the alarm tells of a longer notice", func(b *broken) {
		b.alarms(func(gone driver.GoneError) (driver.GoneError, bool) {
			gone.Left += time.Hour
			return gone, true
		})
	}, "AlarmTellsOfTheNotice"},
}

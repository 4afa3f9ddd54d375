package natslock

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"strconv"
	"strings"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/fencelock/fencelock/driver"
)

// timeout is how long a server may take to answer.
const timeout = 5 * time.Second

// noLeader is how often a write is sent again, 250 ms apart, while no server has the bucket: a server shows a new one
// before it takes writes, and an election takes seconds. All of them are over before timeout, after which the outcome
// would be unknown.
const noLeader = 15

// message is an entry of the bucket.
type message struct {
	name     string
	Revision uint64    `json:"seq"`
	Value    []byte    `json:"data"`
	At       time.Time `json:"time"` // when the leader took it
}

// decode reads JSON, unless somebody has deleted it.
func (m *message) decode(key string, to any) error {
	if len(m.Value) == 0 {
		return nil
	}
	if err := json.Unmarshal(m.Value, to); err != nil {
		return driver.Permanent(fmt.Errorf("nats: what the bucket has of %.80q cannot be read: %w", key, err))
	}
	return nil
}

// ask sends a request to the leader of the stream. A follower, which serves a direct get, may be late.
func (s *store) ask(ctx context.Context, verb string, question, answer any) error {
	if s.invalid != nil {
		return driver.Permanent(s.invalid)
	}
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	text, err := json.Marshal(question)
	if err != nil {
		return driver.Permanent(err)
	}
	m, err := s.js.Conn().RequestWithContext(ctx, s.api+verb+".KV_"+s.name, text)
	if err != nil {
		return s.explain(err)
	}
	var failed struct{ Error *jetstream.APIError }
	if err := json.Unmarshal(m.Data, &failed); err != nil {
		return driver.Refused(fmt.Errorf("nats: the answer to %s cannot be read: %w", verb, err))
	}
	if failed.Error != nil {
		return s.explain(failed.Error)
	}
	return json.Unmarshal(m.Data, answer)
}

// get returns what is there under name, or nil.
func (s *store) get(ctx context.Context, name string) (*message, error) {
	var answer struct{ Message *message }
	err := s.ask(ctx, "STREAM.MSG.GET", map[string]string{"last_by_subj": s.subjects + name}, &answer)
	if is(err, jetstream.JSErrCodeMessageNotFound, jetstream.JSErrCodeStreamNotFound) {
		return nil, nil
	}
	if answer.Message != nil {
		answer.Message.name = name
	}
	return answer.Message, err
}

// list returns the names that match filter, and the time of the leader after it was asked. It makes the bucket.
func (s *store) list(ctx context.Context, filter string) (all []string, now time.Time, err error) {
	sent := time.Now()
	for {
		var answer struct {
			TS    time.Time
			Total int
			State struct{ Subjects map[string]int }
			// Config shows a mirror: what is read there is late, and nothing can be written.
			Config struct{ Mirror *struct{} }
		}
		question := map[string]any{"subjects_filter": s.subjects + filter, "offset": len(all)}
		if err = s.ask(ctx, "STREAM.INFO", question, &answer); is(err, jetstream.JSErrCodeStreamNotFound) {
			if err = s.create(ctx); err == nil {
				continue
			}
		}
		if err != nil {
			return nil, now, err
		}
		if answer.Config.Mirror != nil {
			return nil, now, driver.Permanent(fmt.Errorf("nats: bucket %s is a mirror here: connect to the servers of the "+
				"bucket itself, or to their domain", s.name))
		}
		for subject := range answer.State.Subjects {
			all = append(all, strings.TrimPrefix(subject, s.subjects))
		}
		if now = answer.TS; len(all) < answer.Total && len(answer.State.Subjects) > 0 {
			sent = time.Now()
			continue
		}
		s.mu.Lock()
		defer s.mu.Unlock()
		s.sent, s.time = sent, now
		return all, now, nil
	}
}

// create makes the bucket. Its revisions begin at the time, so that none comes again if it is lost.
func (s *store) create(ctx context.Context) error {
	c := jetstream.StreamConfig{
		Name: "KV_" + s.name, Subjects: []string{s.subjects + ">"}, Description: "locks of fencelock",
		MaxMsgsPerSubject: 1, MaxBytes: -1, MaxMsgs: -1, Discard: jetstream.DiscardNew, Storage: jetstream.FileStorage,
		Replicas: s.replicas, AllowRollup: true, AllowDirect: true, FirstSeq: uint64(time.Now().UnixMicro()),
	}
	if c.Replicas == 0 {
		c.Replicas = 3
	}
	_, err := s.js.CreateStream(ctx, c)
	if s.replicas == 0 && is(err, noCluster) {
		c.Replicas = 1
		_, err = s.js.CreateStream(ctx, c)
	}
	if err == nil || is(err, jetstream.JSErrCodeStreamNameInUse) {
		return nil
	}
	return s.explain(err)
}

// put writes value under name if the revision there is still that one, or whatever it is if it is nil. It returns
// the new revision, or 0.
func (s *store) put(ctx context.Context, name string, value any, revision *uint64) (uint64, error) {
	text, err := json.Marshal(value)
	if err != nil {
		return 0, driver.Permanent(err)
	}
	o := []jetstream.PublishOpt{jetstream.WithRetryAttempts(noLeader)}
	if revision != nil {
		o = append(o, jetstream.WithExpectLastSequencePerSubject(*revision))
	}
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	ack, err := s.js.Publish(ctx, s.puts+s.subjects+name, text, o...)
	if is(err, jetstream.JSErrCodeStreamWrongLastSequence, wrongLastSequence) {
		return 0, nil
	}
	if err != nil {
		return 0, s.explain(err)
	}
	return ack.Sequence, nil
}

// remove removes what is under name, up to a revision. Nobody waits for that: what stays is forgotten some day.
func (s *store) remove(name string, revision uint64) {
	text, _ := json.Marshal(map[string]any{"filter": s.subjects + name, "seq": revision + 1})
	_ = s.js.Conn().PublishRequest(s.api+"STREAM.PURGE.KV_"+s.name, nats.NewInbox(), text)
}

// fresh returns a name that was never used.
func fresh() string { return strconv.FormatUint(rand.Uint64(), 36) }

// atOnce is how many requests of one call are under way.
const atOnce = 64

// Codes of errors that package jetstream has no names for.
const (
	noCluster         jetstream.ErrorCode = 10074 // replicas > 1 without a cluster
	tooLong           jetstream.ErrorCode = 10054
	wrongLastSequence jetstream.ErrorCode = 10164 // of a server from 2.12 on, with replicas
)

// is reports whether err is an answer of the server with one of those codes.
func is(err error, codes ...jetstream.ErrorCode) bool {
	var e *jetstream.APIError
	if !errors.As(err, &e) {
		return false
	}
	for _, code := range codes {
		if e.ErrorCode == code {
			return true
		}
	}
	return false
}

// explain says what is known of a request that has failed. The server has done nothing if it says so, if nobody
// took the request, or if it was not sent.
func (s *store) explain(err error) error {
	answered := errors.As(err, new(*jetstream.APIError))
	switch err = fmt.Errorf("nats: bucket %s: %w", s.name, err); {
	case is(err, jetstream.JSErrCodeJetStreamNotEnabled, jetstream.JSErrCodeJetStreamNotEnabledForAccount, tooLong),
		errors.Is(err, nats.ErrMaxPayload):
		return driver.Permanent(err)
	case errors.Is(err, nats.ErrReconnectBufExceeded) && s.js.Conn().LastError() != nil:
		return driver.Refused(fmt.Errorf("nats: not connected: %w", s.js.Conn().LastError()))
	case answered, errors.Is(err, nats.ErrReconnectBufExceeded), errors.Is(err, nats.ErrConnectionClosed):
		return driver.Refused(err)
	case errors.Is(err, nats.ErrNoResponders), errors.Is(err, jetstream.ErrNoStreamResponse):
		return driver.Refused(fmt.Errorf("%w: no server has the bucket, or it has no leader now", err))
	case errors.Is(err, context.DeadlineExceeded), errors.Is(err, nats.ErrTimeout):
		return fmt.Errorf("%w: the connection is down, or the user lacks a right that package natslock lists", err)
	}
	return err
}

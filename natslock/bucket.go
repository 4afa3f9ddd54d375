package natslock

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"iter"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/fencelock/fencelock/driver"
	"github.com/fencelock/fencelock/internal/swapkv"
)

// bucket is a swapkv.Client, with a Mailbox. Versions are revisions.
type bucket struct {
	js       jetstream.JetStream
	name     string
	replicas int
	api      string // what the subjects of requests begin with
	subjects string // what the subjects of keys begin with
	puts     string // and with it the subjects that are published to, in another domain
	invalid  error  // what is wrong with the arguments of New
}

// timeout is how long a server may take to answer.
const timeout = 5 * time.Second

// noLeader is how often a write is sent again, 250 ms apart, while no server has the bucket: a server shows a new one
// before it takes writes, and an election takes seconds. All of them are over before timeout, after which the outcome
// would be unknown.
const noLeader = 15

func (b *bucket) LineName(key string) string { return "line." + names.Escape(key) }
func (b *bucket) LeaseName(key, lease string) string {
	return "lease." + names.Escape(key) + "." + lease
}

// keyOf returns the key that is part of a name.
func keyOf(name string) string {
	key, _ := names.Unescape(strings.Split(name, ".")[1])
	return key
}

// ask sends a request to the leader of the stream. A follower, which serves a direct get, may be late.
func (b *bucket) ask(ctx context.Context, verb string, question, answer any) error {
	if b.invalid != nil {
		return driver.Permanent(b.invalid)
	}
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	text, err := json.Marshal(question)
	if err != nil {
		return driver.Permanent(err)
	}
	m, err := b.js.Conn().RequestWithContext(ctx, b.api+verb+".KV_"+b.name, text)
	if err != nil {
		return b.explain(err)
	}
	var failed struct{ Error *jetstream.APIError }
	if err := json.Unmarshal(m.Data, &failed); err != nil {
		return driver.Refused(fmt.Errorf("nats: the answer to %s cannot be read: %w", verb, err))
	}
	if failed.Error != nil {
		return b.explain(failed.Error)
	}
	return json.Unmarshal(m.Data, answer)
}

// message is an entry of the bucket.
type message struct {
	Subject string
	Seq     uint64 // 0 if there is none
	Data    []byte
	Time    time.Time // when the leader took it
}

func (m *message) object() swapkv.Object {
	if m.Seq == 0 {
		return swapkv.Object{}
	}
	return swapkv.Object{Version: strconv.FormatUint(m.Seq, 10), Value: m.Data, Modified: m.Time}
}

// Get returns the entry under name, which has no value if somebody has deleted it.
func (b *bucket) Get(ctx context.Context, name string) (swapkv.Object, error) {
	m, err := b.message(ctx, map[string]any{"last_by_subj": b.subjects + name})
	return m.object(), err
}

// next returns the first entry behind a revision.
func (b *bucket) next(ctx context.Context, revision uint64) (message, error) {
	return b.message(ctx, map[string]any{"seq": revision + 1, "next_by_subj": b.subjects + ">"})
}

func (b *bucket) message(ctx context.Context, which map[string]any) (message, error) {
	var answer struct{ Message message }
	err := b.ask(ctx, "STREAM.MSG.GET", which, &answer)
	if is(err, jetstream.JSErrCodeMessageNotFound, jetstream.JSErrCodeStreamNotFound) {
		err = nil
	}
	return answer.Message, err
}

// list returns the names that match filter, and the time of the leader after it was asked. It makes the bucket.
func (b *bucket) list(ctx context.Context, filter string) (all []string, now time.Time, err error) {
	for {
		var answer struct {
			TS    time.Time
			Total int
			State struct{ Subjects map[string]int }
			// Config shows a mirror: what is read there is late, and nothing can be written.
			Config struct{ Mirror *struct{} }
		}
		question := map[string]any{"subjects_filter": b.subjects + filter, "offset": len(all)}
		if err = b.ask(ctx, "STREAM.INFO", question, &answer); is(err, jetstream.JSErrCodeStreamNotFound) {
			if err = b.create(ctx); err == nil {
				continue
			}
		}
		if err != nil {
			return nil, now, err
		}
		if answer.Config.Mirror != nil {
			return nil, now, driver.Permanent(fmt.Errorf(
				"nats: bucket %s is a mirror here: connect to the servers of the bucket itself, or to their domain",
				b.name))
		}
		for subject := range answer.State.Subjects {
			all = append(all, strings.TrimPrefix(subject, b.subjects))
		}
		if len(all) >= answer.Total || len(answer.State.Subjects) == 0 {
			return all, answer.TS, nil
		}
	}
}

// LineNames yields the names of all lines whose keys begin with prefix, which are listed at once.
func (b *bucket) LineNames(ctx context.Context, prefix string) iter.Seq2[string, error] {
	return func(yield func(string, error) bool) {
		all, _, err := b.list(ctx, "line.*")
		if err != nil {
			yield("", err)
		}
		byKey := make(map[string]string)
		for _, name := range all {
			if key := keyOf(name); strings.HasPrefix(key, prefix) {
				byKey[key] = name
			}
		}
		for _, key := range slices.Sorted(maps.Keys(byKey)) {
			if !yield(byKey[key], nil) {
				return
			}
		}
	}
}

// Beside lists the leases and messages of a line.
func (b *bucket) Beside(ctx context.Context, line string) (swapkv.Beside, error) {
	all, now, err := b.list(ctx, strings.Replace(line, "line.", "*.", 1)+".>")
	beside := swapkv.Beside{Leases: map[string]bool{}, Now: now}
	for _, name := range all {
		if strings.HasPrefix(name, "note.") {
			beside.Messages = append(beside.Messages, name)
		} else {
			beside.Leases[name] = true
		}
	}
	return beside, err
}

// create makes the bucket. Its revisions begin at the time, so that none comes again if it is lost.
func (b *bucket) create(ctx context.Context) error {
	c := jetstream.StreamConfig{
		Name: "KV_" + b.name, Subjects: []string{b.subjects + ">"}, Description: "locks of fencelock",
		MaxMsgsPerSubject: 1, MaxBytes: -1, MaxMsgs: -1, Discard: jetstream.DiscardNew, Storage: jetstream.FileStorage,
		Replicas: b.replicas, AllowRollup: true, AllowDirect: true, FirstSeq: uint64(time.Now().UnixMicro()),
	}
	if c.Replicas == 0 {
		c.Replicas = 3
	}
	_, err := b.js.CreateStream(ctx, c)
	if b.replicas == 0 && is(err, noCluster) {
		c.Replicas = 1
		_, err = b.js.CreateStream(ctx, c)
	}
	if err == nil || is(err, jetstream.JSErrCodeStreamNameInUse) {
		return nil
	}
	return b.explain(err)
}

// Put writes value under name if the revision there is still that one.
func (b *bucket) Put(ctx context.Context, name, revision string, value []byte) (string, error) {
	seq, _ := strconv.ParseUint(revision, 10, 64) // 0 if there is none
	return b.publish(ctx, name, value, jetstream.WithExpectLastSequencePerSubject(seq))
}

func (b *bucket) publish(ctx context.Context, name string, value []byte, o ...jetstream.PublishOpt) (string, error) {
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	o = append(o, jetstream.WithRetryAttempts(noLeader))
	ack, err := b.js.Publish(ctx, b.puts+b.subjects+name, value, o...)
	if is(err, jetstream.JSErrCodeStreamWrongLastSequence, wrongLastSequence) {
		return "", nil
	}
	if err != nil {
		return "", b.explain(err)
	}
	return strconv.FormatUint(ack.Sequence, 10), nil
}

// Remove removes what is under name.
func (b *bucket) Remove(name string) { b.purge(b.subjects+name, 0) }

// purge asks the server to remove what has subject, unless it is behind revision; 0 is any. Nobody waits: what stays is
// forgotten some day.
func (b *bucket) purge(subject string, revision uint64) {
	which := map[string]any{"filter": subject}
	if revision > 0 {
		which["seq"] = revision + 1
	}
	text, _ := json.Marshal(which)
	_ = b.js.Conn().PublishRequest(b.api+"STREAM.PURGE.KV_"+b.name, nats.NewInbox(), text)
}

// Codes of errors that package jetstream has no names for.
const (
	noCluster         jetstream.ErrorCode = 10074 // replicas > 1 without a cluster
	tooLong           jetstream.ErrorCode = 10054
	wrongLastSequence jetstream.ErrorCode = 10164 // of a server from 2.12 on, with replicas
)

// is reports whether err is an answer of the server with one of those codes.
func is(err error, codes ...jetstream.ErrorCode) bool {
	var e *jetstream.APIError
	return errors.As(err, &e) && slices.Contains(codes, e.ErrorCode)
}

// explain says what is known of a request that has failed. The server has done nothing if it says so, if nobody
// took the request, or if it was not sent.
func (b *bucket) explain(err error) error {
	answered := errors.As(err, new(*jetstream.APIError))
	switch err = fmt.Errorf("nats: bucket %s: %w", b.name, err); {
	case is(err, jetstream.JSErrCodeJetStreamNotEnabled, jetstream.JSErrCodeJetStreamNotEnabledForAccount, tooLong),
		errors.Is(err, nats.ErrMaxPayload):
		return driver.Permanent(err)
	case errors.Is(err, nats.ErrReconnectBufExceeded): // it was not sent
		return driver.Refused(fmt.Errorf("nats: not connected: %w", cmp.Or(b.js.Conn().LastError(), nats.ErrNoServers)))
	case errors.Is(err, nats.ErrConnectionClosed):
		return driver.Permanent(fmt.Errorf("%w: close it after the locks; one that is not let in twice closes by "+
			"itself, without nats.IgnoreAuthErrorAbort", err))
	case answered:
		return driver.Refused(err)
	case errors.Is(err, nats.ErrNoResponders), errors.Is(err, jetstream.ErrNoStreamResponse):
		return driver.Refused(fmt.Errorf("%w: no server has the bucket, or it has no leader now", err))
	case errors.Is(err, context.DeadlineExceeded), errors.Is(err, nats.ErrTimeout):
		return fmt.Errorf("%w: the connection is down, or the user lacks a right that package natslock lists", err)
	}
	return err
}

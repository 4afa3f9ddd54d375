package sqllock

import (
	"context"
	"database/sql"
	"regexp"
	"slices"
	"strconv"
)

// statement is one statement of a step.
type statement struct {
	*sql.Stmt
	places []int // of its arguments, among those of the step, from 1
}

var parameter = regexp.MustCompile(`\?(\d+)`)

// newStatement numbers the parameters of a text anew, from 1, because drivers want no
// argument that a statement does not use.
func newStatement(n names, text string) (s statement, sql string) {
	sql = parameter.ReplaceAllStringFunc(n.statement(text), func(p string) string {
		place, _ := strconv.Atoi(p[1:])
		if !slices.Contains(s.places, place) {
			s.places = append(s.places, place)
		}
		return "?" + strconv.Itoa(slices.Index(s.places, place)+1)
	})
	return s, sql
}

// pick returns the arguments of a statement: those of every statement, which are the clock and
// the node, and those of its step. What a step was not given is null.
func (s *statement) pick(now instant, node int64, args []any) []any {
	own := [...]int64{now.clock, now.at, now.wall, node}
	picked := make([]any, len(s.places))
	for i, place := range s.places {
		switch {
		case place <= len(own):
			picked[i] = own[place-1]
		case place-len(own) <= len(args):
			picked[i] = args[place-len(own)-1]
		}
	}
	return picked
}

// exec runs s, and reports whether it changed a row. It runs by itself if tx is nil.
func (s *statement) exec(ctx context.Context, tx *sql.Tx, args []any) (bool, error) {
	r, err := s.on(ctx, tx).ExecContext(ctx, args...)
	if err != nil {
		return false, err
	}
	n, err := r.RowsAffected()
	return n > 0, err
}

// query gives take each row of s, and reports whether a row decides the answer of the step.
// key is for errors.
func (s *statement) query(ctx context.Context, tx *sql.Tx, args []any, key string, take func(r *row) error,
) (decided bool, err error) {
	rows, err := s.on(ctx, tx).QueryContext(ctx, args...)
	if err != nil {
		return false, err
	}
	err = eachRow(rows, key, func(r *row) error {
		decided = decided || !slices.Contains(undecided, r.what)
		return take(r)
	})
	return decided, err
}

// undecided are the rows that say nothing about the claim of a step.
var undecided = []string{"", "touched", "removed", "grant", "stranger", "broken", "head"}

func (s *statement) on(ctx context.Context, tx *sql.Tx) *sql.Stmt {
	if tx == nil {
		return s.Stmt
	}
	return tx.StmtContext(ctx, s.Stmt)
}

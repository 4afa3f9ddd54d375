package sqllock

import (
	"context"
	"database/sql"
	"reflect"
	"regexp"
	"slices"
	"strconv"
	"strings"
)

// statement is one statement of a step.
type statement struct {
	*sql.Stmt
	places []int // of its arguments, among those of the step, from 1
	only   int   // the argument without which it is not run, or 0
	silent bool  // it answers no rows
}

var (
	parameter = regexp.MustCompile(`\?(\d+)`)
	condition = regexp.MustCompile(`(?m)^-- if \?(\d+)$`)
)

// newStatement numbers the parameters of a text anew, from 1, because drivers want no
// argument that a statement does not use.
func newStatement(n names, text string) (s statement, sql string) {
	if c := condition.FindStringSubmatch(text); c != nil {
		s.only, _ = strconv.Atoi(c[1])
	}
	sql = parameter.ReplaceAllStringFunc(n.statement(text), func(p string) string {
		place, _ := strconv.Atoi(p[1:])
		if !slices.Contains(s.places, place) {
			s.places = append(s.places, place)
		}
		return "?" + strconv.Itoa(slices.Index(s.places, place)+1)
	})
	s.silent = !strings.HasPrefix(sql, "SELECT") && !strings.Contains(sql, "RETURNING")
	return s, sql
}

// own are the arguments that every statement may use, before those of its step.
const own = 4

// pick returns the arguments of a statement. What a step was not given is null.
func (s *statement) pick(now instant, node int64, args []any) []any {
	picked := make([]any, len(s.places))
	for i, place := range s.places {
		switch {
		case place <= own:
			picked[i] = [...]int64{now.clock, now.at, now.wall, node}[place-1]
		case place-own <= len(args):
			picked[i] = args[place-own-1]
		}
	}
	return picked
}

// on returns s in a transaction, or by itself if tx is nil.
func (s *statement) on(ctx context.Context, tx *sql.Tx) *sql.Stmt {
	if tx == nil {
		return s.Stmt
	}
	return tx.StmtContext(ctx, s.Stmt)
}

// exec runs s, and reports whether it changed a row.
func (s *statement) exec(ctx context.Context, tx *sql.Tx, now instant, node int64, args []any) (bool, error) {
	r, err := s.on(ctx, tx).ExecContext(ctx, s.pick(now, node, args)...)
	if err != nil {
		return false, err
	}
	n, err := r.RowsAffected()
	return n > 0, err
}

// query gives take each row of s, and reports whether a row decides the answer of the step.
// key is for errors.
func (s *statement) query(ctx context.Context, tx *sql.Tx, now instant, node int64, args []any, key string,
	take func(r *row) error,
) (decided bool, err error) {
	rows, err := s.on(ctx, tx).QueryContext(ctx, s.pick(now, node, args)...)
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

func isEmpty(arg any) bool {
	v := reflect.ValueOf(arg)
	return v.IsZero() || v.Kind() == reflect.Slice && v.Len() == 0
}

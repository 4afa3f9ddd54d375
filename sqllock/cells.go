package sqllock

import (
	"context"
	"database/sql"
	sqldriver "database/sql/driver"
	"errors"
	"fmt"
	"math"
	"strconv"
)

// Steps of PostgreSQL and MariaDB ask their driver past Rows of database/sql. Those start a
// goroutine for each question whose context can end, which closes them then: waking it
// twice is a quarter of what a free lock costs the program. Drivers mind the context
// themselves, and rows are read and closed before a step returns.

// queryDriver asks what Raw of a connection gives. ErrSkip says that this driver is to be
// asked by way of database/sql, and that it was not asked anything.
func queryDriver(ctx context.Context, raw any, query string, args []any) (sqldriver.Rows, error) {
	c, ok := raw.(sqldriver.QueryerContext)
	if !ok {
		return nil, sqldriver.ErrSkip
	}
	values := make([]sqldriver.NamedValue, len(args))
	for i, arg := range args {
		values[i] = sqldriver.NamedValue{Ordinal: i + 1, Value: arg}
	}
	return c.QueryContext(ctx, query, values)
}

// asText reads what a driver delivers for a text. It makes a copy; null is empty.
func asText(v sqldriver.Value) (string, error) {
	switch x := v.(type) {
	case []byte:
		return string(x), nil
	case string:
		return x, nil
	case nil:
		return "", nil
	}
	return "", strange(v)
}

// asBytes is asText for those who tell null from empty.
func asBytes(v sqldriver.Value) ([]byte, error) {
	if v == nil {
		return nil, nil
	}
	if b, ok := v.([]byte); ok {
		return append([]byte{}, b...), nil
	}
	text, err := asText(v)
	return []byte(text), err
}

// asNumber reads what a driver delivers for a whole number; null is 0.
func asNumber(v sqldriver.Value) (int64, error) {
	switch x := v.(type) {
	case int64:
		return x, nil
	case nil:
		return 0, nil
	case uint64:
		if x > math.MaxInt64 {
			return 0, strange(v)
		}
		return int64(x), nil
	case bool:
		return int64(btoi(x)), nil
	}
	text, err := asText(v)
	if err != nil {
		return 0, err
	}
	n, err := strconv.ParseInt(text, 10, 64)
	if err != nil {
		return 0, strange(v)
	}
	return n, nil
}

// asFlag reads what a driver delivers for a truth; null is false.
func asFlag(v sqldriver.Value) (bool, error) {
	switch x := v.(type) {
	case bool:
		return x, nil
	case int64:
		if x == 0 || x == 1 {
			return x == 1, nil
		}
		return false, strange(v)
	case nil:
		return false, nil
	}
	text, err := asText(v)
	if err != nil {
		return false, err
	}
	b, err := strconv.ParseBool(text)
	if err != nil {
		return false, strange(v)
	}
	return b, nil
}

func strange(v sqldriver.Value) error {
	if b, ok := v.([]byte); ok {
		v = string(b)
	}
	return fmt.Errorf("the driver delivers %.40q, a %T: that is no value of its type", fmt.Sprint(v), v)
}

// cells is one row of an answer. It is good until the next one is read.
type cells struct {
	names  []string
	values []sqldriver.Value
}

// scan reads all cells into what the pointers point to. Null goes only where there is a
// place for it.
func (c *cells) scan(to ...any) error {
	if len(to) != len(c.values) {
		return fmt.Errorf("a row of %d columns where %d belong", len(c.values), len(to))
	}
	for i, v := range c.values {
		var err error
		switch p := to[i].(type) {
		case *[]byte:
			*p, err = asBytes(v)
		case *sql.NullInt64:
			p.Valid = v != nil
			p.Int64, err = asNumber(v)
		default:
			if v == nil {
				err = errors.New("it is null")
				break
			}
			switch p := p.(type) {
			case *string:
				*p, err = asText(v)
			case *int64:
				*p, err = asNumber(v)
			case *int:
				var n int64
				n, err = asNumber(v)
				*p = int(n)
			case *bool:
				*p, err = asFlag(v)
			default:
				panic(fmt.Sprintf("sqllock: nothing is read into a %T", p))
			}
		}
		if err != nil {
			return cellError{c.names[i], err}
		}
	}
	return nil
}

// cellError says that a cell could not be read because it is not of our making.
type cellError struct {
	column string
	err    error
}

func (e cellError) Error() string { return fmt.Sprintf("column %q: %v", e.column, e.err) }

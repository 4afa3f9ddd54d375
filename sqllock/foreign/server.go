package foreign

import (
	"context"
	"database/sql"
	"fmt"

	"github.com/fencelock/fencelock/internal/driverutil"
	"github.com/fencelock/fencelock/sqllock/internal/reply"
)

// server is the database of the locks of a format.
type server struct {
	format string
	db     *sql.DB
	errors reply.Table
}

// failed says what could not be done with which lock and what to do about it, as a refusal if the server refused.
func (s *server) failed(ctx context.Context, doing, key string, err error) error {
	advice, verdict := s.errors.Meaning(err)
	what := fmt.Sprintf("%s: cannot %s %q", s.format, doing, key)
	if advice != "" {
		what += ", " + advice
	}
	if ended := driverutil.Ended(ctx); ended != nil && verdict == reply.Unknown {
		err = ended
	}
	return verdict.Of(fmt.Errorf("%s: %w", what, err))
}

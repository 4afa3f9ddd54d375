package sqllock

import "context"

// Options change what New does by default. The zero value and nil are ready.
type Options struct {
	// Prefix begins the names of the tables, so that several sets of locks may be
	// kept in one database: 1 to 32 letters, digits and underscores. The default
	// is "fencelock_".
	Prefix string
	// CreateTables creates the tables at the first call if they are missing, also when
	// several processes do so at once. Without it the first call fails, and says so,
	// until the DDL that Schema returns has been run.
	CreateTables bool
	// Listen is for PostgreSQL: it lets waiters be woken by NOTIFY, which database/sql cannot hear. It runs LISTEN
	// on a connection of its own, calls heard once LISTEN is in effect and again for each notification, and returns
	// when ctx ends or the connection is lost; it is called again then. One goroutine at a time calls it. channel is
	// a name that needs no quotes. With github.com/jackc/pgx/v5:
	//
	//	func(ctx context.Context, channel string, heard func()) error {
	//		conn, err := pgx.Connect(ctx, url)
	//		if err != nil {
	//			return err
	//		}
	//		defer conn.Close(context.WithoutCancel(ctx))
	//		if _, err := conn.Exec(ctx, "LISTEN "+channel); err != nil {
	//			return err
	//		}
	//		for {
	//			heard()
	//			if _, err := conn.WaitForNotification(ctx); err != nil {
	//				return err
	//			}
	//		}
	//	}
	//
	// With github.com/lib/pq it is a pq.Listener that is closed when ctx ends or its callback
	// hears of ListenerEventDisconnected; verify/sql/listen_test.go has all of it.
	//
	// Through a pooler in transaction mode a LISTEN is lost. Without Listen the database is polled.
	Listen func(ctx context.Context, channel string, heard func()) error
}

// listen is the type of Options.Listen.
type listen = func(ctx context.Context, channel string, heard func()) error

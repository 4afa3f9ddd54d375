package main

import (
	"io"

	"github.com/fencelock/fencelock/integrations/migratelock"
)

// counter counts the migrations that went through, which golang-migrate does not tell.
type counter struct {
	*migratelock.Driver
	applied int
}

func (c *counter) Run(migration io.Reader) error {
	err := c.Driver.Run(migration)
	if err == nil {
		c.applied++
	}
	return err
}

//go:build !man

package main

import "github.com/spf13/cobra"

func makerVerbs(*cli) []*cobra.Command { return nil }

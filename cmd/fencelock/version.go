package main

import (
	"fmt"
	"runtime"
	"runtime/debug"

	"github.com/spf13/cobra"
)

func newVersion(c *cli) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "version",
		Short: "Print the version",
		Args:  cobra.NoArgs,
		RunE: func(*cobra.Command, []string) error {
			asJSON, err := c.json()
			if err != nil {
				return err
			}
			v := buildVersion()
			if asJSON {
				return writeJSON(c.out, v, true)
			}
			_, err = fmt.Fprintln(c.out, v)
			return err
		},
	}
	c.outputFlag(cmd)
	return cmd
}

type versionView struct {
	Version  string `json:"version"`
	Go       string `json:"go"`
	Platform string `json:"platform"`
}

func (v versionView) String() string {
	return fmt.Sprintf("fencelock %s (%s, %s)", v.Version, v.Go, v.Platform)
}

func buildVersion() versionView {
	v := versionView{Version: "(devel)", Go: runtime.Version(), Platform: runtime.GOOS + "/" + runtime.GOARCH}
	if info, ok := debug.ReadBuildInfo(); ok && info.Main.Version != "" {
		v.Version = info.Main.Version
	}
	return v
}

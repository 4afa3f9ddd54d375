package main

import (
	"github.com/spf13/cobra"

	"github.com/fencelock/fencelock/internal/clean"
	"github.com/fencelock/fencelock/internal/terminal"
	"github.com/fencelock/fencelock/storeurl"
)

// setting is one setting as config shows it.
type setting struct {
	Name  string `json:"name"`
	Value string `json:"value"` // without a password
	From  string `json:"from"`  // a flag, a variable, a file, or "the default"
}

func newConfig(c *cli) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "config",
		Short: "Show which store is used, and where each setting comes from",
		Long: `config shows the settings in use and asks no store. The URL comes from --url, else from
FENCELOCK_URL, else from the first fencelock.toml in the working directory, its parents,
or your folder for settings, else it is the default:

  # fencelock.toml
  url = "postgres://locks@db.example:5432/app"
  password_file = "secret"   # relative to this file
  ca = "ca.pem"              # and cert, key: files in PEM form, for TLS
  history = true             # see fencelock history --help

Flags and variables come before the file. What stands beside the url of a file is used for
that URL only. A file that others may write is refused.`,
		Args: cobra.NoArgs,
		RunE: func(*cobra.Command, []string) error {
			asJSON, err := c.json()
			if err != nil {
				return err
			}
			s, err := c.findStore()
			if err != nil {
				return err
			}
			settings, err := c.settings(s)
			if err != nil {
				return err
			}
			if asJSON {
				return writeJSON(c.out, settings, true)
			}
			table := [][]string{{"SETTING", "VALUE", "FROM"}}
			for _, x := range settings {
				table = append(table, []string{x.Name, plain(x.Value), plain(x.From)})
			}
			return terminal.Table(c.out, table, nil)
		},
	}
	c.outputFlag(cmd)
	return cmd
}

// settings are what s was made of.
func (c *cli) settings(s *store) ([]setting, error) {
	all := []setting{{"url", s.String(), s.source}}
	if from := c.passwordSource(s.file); from != "" {
		all = append(all, setting{"password", "(not shown)", from})
	}
	for _, x := range []struct{ name, variable, inFile string }{
		{"ca", storeurl.EnvCA, s.file.CA},
		{"cert", storeurl.EnvCert, s.file.Cert},
		{"key", storeurl.EnvKey, s.file.Key},
	} {
		value, from := clean.Env(x.variable), x.variable
		if value == "" {
			value, from = x.inFile, s.file.path
		}
		if value != "" {
			all = append(all, setting{x.name, value, from})
		}
	}
	on, from, err := s.historyFrom()
	if on {
		all = append(all, setting{"history", "on", from})
	}
	return all, err
}

// passwordSource says where a password that is not in the URL comes from, or "".
func (c *cli) passwordSource(f configFile) string {
	switch {
	case c.passwordFile != "":
		return "--password-file " + c.passwordFile
	case clean.Env(envPassword) != "":
		return envPassword
	}
	return f.PasswordFile
}

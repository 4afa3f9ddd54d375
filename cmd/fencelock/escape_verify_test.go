//go:build verify && linux

package main

import "testing"

// Each way out of the process group meets each way in which a lock ends. The next holder
// must find nothing that writes.
func TestNextHolderFindsNoWriterThatLeftTheGroup(t *testing.T) {
	ends := map[string]func(holder *proc){
		"killed":   func(holder *proc) { holder.signal("KILL") },
		"stopped":  func(holder *proc) { holder.signal("STOP") },
		"max hold": func(*proc) {},
	}
	for how, end := range ends {
		for name := range sessions {
			t.Run(name+", "+how, func(t *testing.T) {
				s := sqliteStage(t).forAll()
				flags := []string{"--ttl", "3s", "--grace", "500ms"}
				if how == "max hold" {
					flags = append(flags, "--max-hold", "3s")
				}
				holder, _ := s.escapes(name, flags...)
				end(holder)
				s.wants(0, "run", "-w", "50", "n", "--", "sh", "-c", deathOf)
				s.wantDead()
				holder.signal("CONT")
				holder.wait()
			})
		}
	}
}

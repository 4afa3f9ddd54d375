package httplock

import "slices"

// Slugs are the types of problems.
func Slugs() []string {
	var all []string
	for slug := range problems {
		all = append(all, slug)
	}
	slices.Sort(all)
	return all
}

// Paths are the paths of a Server and their methods.
func (s *Server) Paths() map[string]string {
	all := map[string]string{}
	for path, r := range s.routes {
		all[path] = r.method
	}
	return all
}

package main

import (
	"context"
	"path"
	"strconv"
	"time"
)

// git runs git in the clone. Its commits are the same whoever makes them, and when.
func (r *release) git(ctx context.Context, args ...string) (string, error) {
	when := strconv.FormatInt(r.time.Unix(), 10) + " +0000"
	env := []string{
		"GIT_CONFIG_GLOBAL=/dev/null", "GIT_CONFIG_NOSYSTEM=1",
		"GIT_AUTHOR_NAME=fencelock", "GIT_AUTHOR_EMAIL=release@fencelock.invalid", "GIT_AUTHOR_DATE=" + when,
		"GIT_COMMITTER_NAME=fencelock", "GIT_COMMITTER_EMAIL=release@fencelock.invalid", "GIT_COMMITTER_DATE=" + when,
	}
	return output(ctx, command{dir: r.clone(), env: env, name: "git", args: args})
}

// commitTime returns when the commit was made that is checked out in a repository.
func commitTime(ctx context.Context, repository string) (time.Time, error) {
	seconds, err := output(ctx, command{dir: repository, name: "git", args: []string{"log", "-1", "--format=%ct"}})
	if err != nil {
		return time.Time{}, err
	}
	unix, err := strconv.ParseInt(seconds, 10, 64)
	return time.Unix(unix, 0).UTC(), err
}

// makeClone clones the commit that is checked out in the source.
func (r *release) makeClone(ctx context.Context) error {
	head, err := output(ctx, command{dir: r.source, name: "git", args: []string{"rev-parse", "HEAD"}})
	if err != nil {
		return err
	}
	clone := []string{"clone", "--quiet", "--no-checkout", r.source, r.clone()}
	if _, err := output(ctx, command{name: "git", args: clone}); err != nil {
		return err
	}
	_, err = r.git(ctx, "checkout", "--quiet", "--detach", head)
	return err
}

// tree stores the clone's files as they are, and returns the name of their tree.
func (r *release) tree(ctx context.Context) (string, error) {
	if _, err := r.git(ctx, "add", "--update"); err != nil {
		return "", err
	}
	if _, err := r.git(ctx, "add", "--", "*go.sum"); err != nil {
		return "", err
	}
	return r.git(ctx, "write-tree")
}

// tag commits the versions, and tags each module the way the go command looks for it.
func (r *release) tag(ctx context.Context) error {
	if _, err := r.git(ctx, "commit", "--quiet", "-m", "Release "+r.version); err != nil {
		return err
	}
	for _, m := range r.modules {
		tag := path.Join(m.dir, r.version)
		if _, err := r.git(ctx, "tag", "-a", "-m", tag, tag); err != nil {
			return err
		}
	}
	return nil
}

#!/usr/bin/env bash
# Runs a command among other servers than this machine has: those of another release of
# Debian, in a folder of their own that the command has for its root.
#
#   scripts/with-debian.sh RELEASE PACKAGE... -- COMMAND...
#
# It needs root, Linux and a Debian or a relative that trusts Debian's archive. It changes
# nothing outside the folder, $XDG_CACHE_HOME/fencelock, which may be deleted at any time;
# what it once downloaded (half a gigabyte) stays there and is used again.
set -euo pipefail
cd "$(dirname "$0")/.."

release=${1-}
shift || true
packages=()
while [ $# -gt 0 ] && [ "$1" != -- ]; do
	packages+=("$1")
	shift
done
if [ ${#packages[@]} = 0 ] || [ $# -lt 2 ]; then
	echo "usage: scripts/with-debian.sh RELEASE PACKAGE... -- COMMAND..." >&2
	exit 2
fi
shift
if [ "$(id -u)" != 0 ]; then
	echo "scripts/with-debian.sh: only root can give a command another root folder" >&2
	exit 1
fi

home=${XDG_CACHE_HOME:-$HOME/.cache}/fencelock/$(printf '%s-' "$release" "${packages[@]}")
home=${home%-}
root=$home/root

# fill downloads the packages with all that they need, and unpacks them. Their own scripts,
# which would start servers, do not run.
fill() {
	local site apt state=$home/apt
	site=$(apt-get indextargets --format '$(SITE)' | grep -m1 '/debian$') || {
		echo "scripts/with-debian.sh: no mirror of Debian is among the sources of apt" >&2
		return 1
	}
	rm -rf "$home"
	mkdir -p "$root" "$state/lists/partial" "$state/cache/archives/partial"
	echo "deb [signed-by=/usr/share/keyrings/debian-archive-keyring.gpg] $site $release main" >"$state/sources.list"
	: >"$state/status" # nothing is installed there
	apt=(apt-get -qq -o Dir::Etc::sourcelist="$state/sources.list" -o Dir::Etc::sourceparts=/dev/null
		-o Dir::State::lists="$state/lists" -o Dir::State::status="$state/status" -o Dir::Cache="$state/cache"
		-o APT::Install-Recommends=false -o APT::Sandbox::User=root)
	echo "downloading ${packages[*]} of $release" >&2
	"${apt[@]}" update >&2
	"${apt[@]}" -y --download-only install base-files base-passwd libc-bin bash coreutils findutils grep sed gawk netbase iproute2 git \
		tzdata libslf4j-java "${packages[@]}" >&2
	local deb
	for deb in "$state"/cache/archives/*.deb; do
		dpkg-deb --fsys-tarfile "$deb" | tar -x -C "$root" --keep-directory-symlink
	done
	for deb in "${packages[@]}"; do
		(cd "$state/cache/archives" && ls "${deb}"_*.deb) | sed 's/_[^_]*$//; s/_/ /; s/%3a/:/'
	done >"$home/versions"
	rm -rf "$state"

	cp "$root/usr/share/base-passwd/passwd.master" "$root/etc/passwd"
	cp "$root/usr/share/base-passwd/group.master" "$root/etc/group"
	local id=990 user
	for user in mysql postgres; do
		echo "$user:x:$id:$id::/nonexistent:/bin/false" >>"$root/etc/passwd"
		echo "$user:x:$id:" >>"$root/etc/group"
		id=$((id + 1))
	done
	chroot "$root" ldconfig
	mkdir -p "$root/usr/local/bin"
	[ -e "$root/bin/sh" ] || ln -s bash "$root/bin/sh"
	[ -e "$root/usr/bin/awk" ] || ln -s gawk "$root/usr/bin/awk"
	local java
	for java in "$root"/usr/lib/jvm/java-*-openjdk-*/bin/java; do
		[ ! -e "$java" ] || ln -sf "${java#"$root"}" "$root/usr/local/bin/java"
	done
	local php
	for php in "$root"/usr/bin/php[0-9].[0-9]; do
		[ ! -e "$php" ] || ln -sf "${php#"$root"}" "$root/usr/local/bin/php"
	done
	# The tests start Redis by its name; Valkey goes by that, too.
	if [ -e "$root/usr/bin/valkey-server" ] && [ ! -e "$root/usr/bin/redis-server" ]; then
		ln -s /usr/bin/valkey-server "$root/usr/local/bin/redis-server"
	fi
	touch "$home/complete"
}
[ -e "$home/complete" ] || fill
cat "$home/versions" >&2
DEBIAN_VERSIONS=$(paste -sd, "$home/versions")
export DEBIAN_VERSIONS

export PATH="$(go env GOROOT)/bin:/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
shared=("$PWD" "$(go env GOROOT)" "$(go env GOMODCACHE)" "$(go env GOCACHE)")
export HOME=/root GOMODCACHE=${shared[2]} GOCACHE=${shared[3]} CGO_ENABLED=0 # there is no C compiler

# The mounts end with the command.
exec unshare --mount --propagation private -- bash -c '
	set -e
	root=$1 work=$2
	mount -t proc proc "$root/proc"
	mount -t tmpfs tmpfs "$root/tmp"
	mount --rbind /dev "$root/dev"
	mount --rbind /sys "$root/sys"
	for file in resolv.conf hosts; do
		touch "$root/etc/$file"
		mount --bind /etc/$file "$root/etc/$file"
	done
	shift 2
	while [ "$1" != -- ]; do
		mkdir -p "$root$1"
		mount --bind "$1" "$root$1"
		shift
	done
	shift
	exec chroot "$root" bash -c "cd \"\$0\" && exec \"\$@\"" "$work" "$@"
' bash "$root" "$PWD" "${shared[@]}" -- "$@"

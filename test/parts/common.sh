# Sourced by the scripts beside it. Each of them fetches or builds one real part once, into a cache keyed by version, and prints
# on stdout where it is. Nothing is installed on the machine: packages come through apt, with its own signature checks but a
# private state, from the mirror that the machine is set up with, and are unpacked.
set -euo pipefail
cache=${XDG_CACHE_HOME:-$HOME/.cache}/podnet
mkdir -p "$cache/parts"

say() { echo "parts: $*" >&2; }
fail() { say "$*"; exit 1; }

# part NAME-VERSION: sets $dir. Returns 0 (and prints nothing) when it is there already; else takes the lock and makes $work, to be
# filled and handed to `done_part`.
have_part() {
  dir=$cache/parts/$1
  [ -e "$dir/.done" ] && return 0
  exec 9>"$cache/parts/$1.lock"
  flock 9
  [ -e "$dir/.done" ] && return 0
  say "fetching $1"
  work=$cache/parts/$1.new
  rm -rf "$work" "$dir"
  mkdir -p "$work"
  return 1
}
done_part() {
  touch "$work/.done"
  mv "$work" "$dir"
}

# use_suite SUITE: apt's commands speak about this Debian suite from now on, whatever the machine runs. Lists are fetched once a day.
use_suite() {
  local state=$cache/apt/$1 mirror arch
  mirror=$(grep -rhoE 'https?://[^ ]+/debian/?( |$)' /etc/apt/sources.list /etc/apt/sources.list.d 2>/dev/null | grep -v archive | head -1 || :)
  mirror=${mirror%% *}
  [ -n "$mirror" ] || fail "no Debian mirror found in /etc/apt/sources.list or sources.list.d"
  arch=$(dpkg --print-architecture)
  mkdir -p "$state/lists/partial" "$state/archives/partial"
  exec 8>"$state/lock"
  flock 8
  if [ -e "$state/conf" ] && [ -n "$(find "$state/updated" -mmin -1440 2>/dev/null)" ]; then
    exec 8>&-
    export APT_CONFIG=$state/conf
    return
  fi
  : >"$state/status"
  printf '%s [signed-by=/usr/share/keyrings/debian-archive-keyring.gpg arch=%s] %s %s main\n' \
    deb "$arch" "$mirror" "$1" deb-src "$arch" "$mirror" "$1" >"$state/sources"
  cat >"$state/conf" <<-C
	Dir::State "$state"; Dir::State::status "$state/status"; Dir::Cache "$state"; Dir::Cache::archives "$state/archives";
	Dir::Etc::sourcelist "$state/sources"; Dir::Etc::sourceparts "/dev/null";
	Dir::Etc::preferences "/dev/null"; Dir::Etc::preferencesparts "/dev/null";
	APT::Sandbox::User "root"; Acquire::Languages "none"; Acquire::Retries "3"; Acquire::Check-Valid-Until "false";
	Acquire::IndexTargets::deb::Contents-deb::DefaultEnabled "false";
	C
  export APT_CONFIG=$state/conf
  say "reading Debian $1's package lists"
  # Without this mode an index that could not be fetched is a warning, and the package "does not exist" afterwards.
  local try
  for try in 1 2 3; do
    apt-get -qq -o APT::Update::Error-Mode=any update >&2 && break
    [ "$try" != 3 ] || fail "apt-get update for $1 failed"
    sleep 5
  done
  touch "$state/updated"
  exec 8>&-
}

# unpack_deb TARGET PACKAGE[=VERSION]...: downloads and unpacks, without dependencies.
unpack_deb() {
  local target=$1 debs
  shift
  debs=$(mktemp -d "$cache/debs.XXXXXX")
  (cd "$debs" && apt-get -qq download "$@" >&2) || { rm -rf "$debs"; fail "could not download $*"; }
  for deb in "$debs"/*.deb; do dpkg-deb -x "$deb" "$target"; done
  rm -rf "$debs"
}

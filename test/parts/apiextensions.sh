#!/usr/bin/env bash
# apiextensions-apiserver 0.36: a current API server for custom resources alone (CEL rules, status subresource, printer columns,
# watch), built from Debian unstable's packages of Go sources with its Go 1.26. Prints the executable's path.
# The build takes about three minutes of processor time at low priority, once.
. "$(dirname "$0")/common.sh"
version=0.36
go=1.26
if ! have_part "apiextensions-apiserver-$version"; then
  use_suite unstable
  found=$(apt-cache madison golang-k8s-apiextensions-apiserver-dev)
  grep -q "| *$version\." <<<"$found" || fail "Debian unstable no longer has apiextensions-apiserver $version (but $found): raise the version in $0"
  # A dry run names what it depends on; of that only the Go sources count, and one compiler.
  plan=$(apt-get install -s --no-install-recommends golang-k8s-apiextensions-apiserver-dev)
  mapfile -t sources < <(awk '/^Inst golang-.*-dev /{print $2}' <<<"$plan")
  unpack_deb "$work/sys" "golang-$go-go" "golang-$go-src" "${sources[@]}"
  say "building apiextensions-apiserver (minutes, once)"
  GOROOT=$work/sys/usr/lib/go-$go GOPATH=$work/sys/usr/share/gocode GOCACHE=$work/gocache GO111MODULE=off GOTOOLCHAIN=local \
    GOFLAGS="-p=${PODNET_BUILD_JOBS:-1}" CGO_ENABLED=0 \
    nice -n 19 "$work/sys/usr/lib/go-$go/bin/go" build -ldflags "-s -w" -o "$work/apiextensions-apiserver" k8s.io/apiextensions-apiserver >&2
  rm -rf "$work/sys" "$work/gocache"
  done_part
fi
echo "$dir/apiextensions-apiserver"

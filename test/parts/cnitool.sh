#!/usr/bin/env bash
# cnitool, built from Debian 12's source package with Debian 12's Go. Prints the executable's path.
. "$(dirname "$0")/common.sh"
version=1.1.2
if ! have_part "cnitool-$version"; then
  use_suite bookworm
  mkdir "$work/src"
  (cd "$work/src" && apt-get -qq source --download-only "golang-github-appc-cni=$version*" >/dev/null 2>&1) ||
    (cd "$work/src" && apt-get -qq source --download-only golang-github-appc-cni >/dev/null)
  package=$work/go/src/github.com/containernetworking/cni
  mkdir -p "$package"
  tar -xf "$work"/src/*.orig.tar.* -C "$package" --strip-components=1
  unpack_deb "$work/sys" golang-1.19-go golang-1.19-src
  say "building cnitool"
  GOROOT=$work/sys/usr/lib/go-1.19 GOPATH=$work/go GOCACHE=$work/gocache GO111MODULE=off GOFLAGS= CGO_ENABLED=0 \
    "$work/sys/usr/lib/go-1.19/bin/go" build -o "$work/cnitool" github.com/containernetworking/cni/cnitool
  rm -rf "$work/src" "$work/sys" "$work/go" "$work/gocache"
  done_part
fi
echo "$dir/cnitool"

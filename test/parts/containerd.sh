#!/usr/bin/env bash
# containerd.sh SUITE: containerd and ctr as that Debian suite has them (bookworm: 1.6; trixie: 1.7), with Debian 12's runc: later ones
# need a newer libc, whereas containerd itself starts with an old one. Prints the folder that they were unpacked into.
. "$(dirname "$0")/common.sh"
[ $# = 1 ] || fail "usage: containerd.sh SUITE"
suite=$1
if ! have_part "containerd-$suite"; then
  use_suite bookworm
  unpack_deb "$work" runc
  use_suite "$suite"
  unpack_deb "$work" containerd
  done_part
fi
echo "$dir"

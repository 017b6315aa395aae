#!/usr/bin/env bash
# containerd, ctr and runc as Debian 12 has them. Prints the folder that they were unpacked into.
. "$(dirname "$0")/common.sh"
version=bookworm
if ! have_part "containerd-$version"; then
  use_suite bookworm
  unpack_deb "$work" containerd runc
  done_part
fi
echo "$dir"

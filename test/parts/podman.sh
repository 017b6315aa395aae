#!/usr/bin/env bash
# podman 4.3 (the last with a CNI backend in Debian), conmon and the libraries they need, as Debian 12 has them. Prints the folder that
# they were unpacked into.
. "$(dirname "$0")/common.sh"
version=bookworm
if ! have_part "podman-$version"; then
  use_suite bookworm
  unpack_deb "$work" podman conmon libgpgme11 libassuan0 libgpg-error0 libdevmapper1.02.1 libsubid4 libseccomp2 libsystemd0 libglib2.0-0
  done_part
fi
echo "$dir"

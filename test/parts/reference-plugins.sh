#!/usr/bin/env bash
# The reference CNI plugins, what podnet's own types are compared with. Prints the folder of the executables.
. "$(dirname "$0")/common.sh"
version=1.9.1
if ! have_part "reference-plugins-$version"; then
  use_suite unstable
  versions=$(apt-cache madison containernetworking-plugins | awk '{print $3}' | sort -u)
  found=$(sed -n "/^$version/{p;q}" <<<"$versions")
  [ -n "$found" ] || fail "Debian unstable no longer has the reference plugins $version (but ${versions//$'\n'/, }): raise the version in $0 and look at the conformance differences"
  unpack_deb "$work" "containernetworking-plugins=$found"
  done_part
fi
echo "$dir/usr/lib/cni"

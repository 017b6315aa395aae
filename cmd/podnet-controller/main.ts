// The controller (conditions, finalizers, the default network, admission) is not part of this release. The program exists so that
// manifests and images have its final name; it says so and ends.
process.stderr.write(
  "podnet-controller: this build has no controller yet: networks come from podnetd's --networks-dir\n",
);
process.exitCode = 1;

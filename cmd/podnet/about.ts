import { cniVersions } from "../../lib/cni/types.ts";

/** podnet's version, the same as in package.json (a test compares them). */
export const podnetVersion = "0.1.0";

/** What a person sees who starts the stub by hand. */
export const aboutText = `podnet ${podnetVersion}: several networks for Kubernetes pods, the CNI plugin
CNI versions: ${cniVersions.join(", ")}

A container runtime starts it with CNI_COMMAND set and a network configuration on stdin;
it hands both to podnetd, the daemon of the node, and prints the daemon's answer.
By hand use podnetctl or cnitool. Keys of the plugin configuration read here:
  daemonSocket   socket of podnetd (default /run/podnet/podnetd.sock)
  daemonWait     seconds that ADD, DEL and CHECK wait for a restarting podnetd (default 30)
  daemonWaitDel  the same of DEL alone (default daemonWait)
  daemonTimeout  seconds that a call may take in all (default 120)
`;

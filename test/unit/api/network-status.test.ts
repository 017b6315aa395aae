import assert from "node:assert/strict";
import { test } from "node:test";
import {
  type AttachedNetwork,
  npwgStatus,
  podNetworkStatus,
} from "../../../lib/api/network-status.ts";

function attached(
  network: string,
  ifName: string,
  more: Partial<AttachedNetwork> & { readonly ips?: readonly string[] },
): AttachedNetwork {
  const { ips = [], ...rest } = more;
  return {
    network,
    ifName,
    default: false,
    defaultRoutes: [],
    result: {
      interfaces: [{ name: "veth0" }, { name: ifName, sandbox: "/run/netns/x" }],
      ips: [
        ...ips.map((address) => ({ address, interface: 1 })),
        { address: "192.0.2.1/32", interface: 0 },
      ],
      routes: [],
      dns: {},
    },
    ...rest,
  };
}

const eth0 = attached("default", "eth0", {
  default: true,
  ips: ["10.244.1.7/24"],
  mac: "02:00:00:00:00:07",
  mtu: 1500,
  defaultRoutes: [{ family: 4, gateway: "10.244.1.1" }],
});

test("the rows of podnet's status are those of the proposal (E-4)", () => {
  const net1 = attached("dataplane", "net1", { ips: ["192.168.50.3/24"] });
  assert.deepEqual(podNetworkStatus([eth0, net1]), [
    { name: "default", interfaceName: "eth0", ip: "10.244.1.7", isDefaultGW: true },
    { name: "dataplane", interfaceName: "net1", ip: "192.168.50.3" },
  ]);
});

test("families whose default routes differ are told apart, and a network without addresses has a row", () => {
  const net1 = attached("app/n", "net1", {
    ips: ["10.0.0.2/24", "fd00::2/64"],
    defaultRoutes: [{ family: 6, gateway: "fe80::1" }],
  });
  assert.deepEqual(podNetworkStatus([eth0, net1, attached("l2", "net2", {})]), [
    {
      name: "default",
      interfaceName: "eth0",
      ip: "10.244.1.7",
      isDefaultGW: true,
      isDefaultGW4: true,
    },
    { name: "app/n", interfaceName: "net1", ip: "10.0.0.2" },
    {
      name: "app/n",
      interfaceName: "net1",
      ip: "fd00::2",
      isDefaultGW: true,
      isDefaultGW6: true,
    },
    { name: "l2", interfaceName: "net2" },
  ]);
});

test("the standard's status has default once, bare addresses, and both names of the gateway", () => {
  const dns = { nameservers: ["10.96.0.10"] };
  const net1 = attached("app/n", "net1", { defaultRoutes: [{ family: 6, gateway: "" }] });
  const first = { ...eth0, result: { ...eth0.result, dns } };
  assert.deepEqual(npwgStatus([first, net1]), [
    {
      name: "default",
      interface: "eth0",
      ips: ["10.244.1.7"],
      mac: "02:00:00:00:00:07",
      mtu: 1500,
      default: true,
      dns,
      gateway: ["10.244.1.1"],
      "default-route": ["10.244.1.1"],
    },
    { name: "app/n", interface: "net1", dns: {} },
  ]);
});

import { spawn, spawnSync } from "node:child_process";
import { once } from "node:events";
import type { CniResult } from "../../lib/cni/types.ts";
import type { Lab, Place } from "./lab.ts";

/** A pod on a bridge of the node, made by hand: what is chained after the bridge is what is tested. */
export interface Pod {
  readonly place: Place;
  readonly result: CniResult;
}

/**
 * A node (192.0.2.1, 192.0.2.11, 2001:db8::1) with a bridge (10.7.0.1, fd07::1) and two pods on it (10.7.0.2, 10.7.0.3), which a machine outside
 * (192.0.2.2, 2001:db8::2) has no route to. Servers in them answer with the peer's address.
 */
export class Town implements Disposable {
  readonly node: Place;
  readonly outside: Place;
  readonly one: Pod;
  readonly two: Pod;
  readonly #servers: { kill(): unknown }[] = [];

  private constructor(lab: Lab, node: Place) {
    const outside = lab.node();
    this.node = node;
    this.outside = outside;
    ip(node, "link add br0 type bridge");
    ip(node, "link set br0 up");
    ip(node, "address add 10.7.0.1/24 dev br0");
    ip(node, "-6 address add fd07::1/64 dev br0 nodad");
    ip(node, `link add up0 type veth peer name up0 netns ${outside.name}`);
    for (const [place, last] of [
      [node, 1],
      [outside, 2],
    ] as const) {
      ip(place, "link set up0 up");
      ip(place, `address add 192.0.2.${last}/24 dev up0`);
      ip(place, `-6 address add 2001:db8::${last}/64 dev up0 nodad`);
    }
    ip(node, "address add 192.0.2.11/24 dev up0");
    node.run("sysctl", "-qw", "net.ipv4.ip_forward=1", "net.ipv6.conf.all.forwarding=1");
    this.one = makePod(lab, node, 2);
    this.two = makePod(lab, node, 3);
  }

  /** Pod one serves TCP port 80 and UDP port 53, pod two TCP port 80. */
  static async build(lab: Lab, node: Place): Promise<Town> {
    const town = new Town(lab, node);
    const { one, two } = town;
    await Promise.all([
      town.serve(one.place, 80),
      town.serve(two.place, 80),
      town.serve(one.place, 53, "udp"),
    ]);
    return town;
  }

  /** Starts a server that answers each connection or datagram with the peer's address. */
  async serve(place: Place, port: number, protocol: "tcp" | "udp" = "tcp"): Promise<void> {
    const script =
      protocol === "tcp"
        ? `require("net").createServer((s)=>{s.on("error",()=>{});s.end(s.remoteAddress)}).listen(${port},"::",()=>console.log("up"))`
        : `const u=require("dgram").createSocket("udp6");u.on("message",(m,r)=>u.send(r.address,r.port,r.address));u.bind(${port},"::",()=>console.log("up"))`;
    const [program = "", ...args] = place.wrap([process.execPath, "-e", script]);
    const child = spawn(program, args, { stdio: ["ignore", "pipe", "inherit"] });
    this.#servers.push(child);
    await new Promise((up) => child.stdout.once("data", up));
  }

  [Symbol.dispose](): void {
    for (const server of this.#servers.splice(0)) server.kill();
  }
}

function ip(place: Place, text: string): void {
  place.run("ip", ...text.split(" "));
}

function makePod(lab: Lab, node: Place, number: number): Pod {
  const place = lab.pod();
  ip(node, `link add v${number} type veth peer name eth0 netns ${place.name}`);
  ip(node, `link set v${number} master br0 up`);
  // What br_netfilter forwards within the bridge comes back by the port it came from (the bridge plugin: hairpinMode).
  ip(node, `link set v${number} type bridge_slave hairpin on`);
  ip(place, "link set lo up");
  ip(place, "link set eth0 up");
  ip(place, `address add 10.7.0.${number}/24 dev eth0`);
  ip(place, `-6 address add fd07::${number}/64 dev eth0 nodad`);
  ip(place, "route add default via 10.7.0.1");
  ip(place, "-6 route add default via fd07::1");
  return {
    place,
    result: {
      interfaces: [{ name: "br0" }, { name: "eth0", sandbox: place.path }],
      ips: [
        { address: `10.7.0.${number}/24`, interface: 1 },
        { address: `fd07::${number}/64`, interface: 1 },
      ],
      routes: [],
      dns: {},
    },
  };
}

/** What the server says (the peer it sees), or "" when nothing answers within a second. */
export function ask(
  from: Place,
  to: string,
  options: { protocol?: "tcp" | "udp"; source?: string } = {},
): string {
  const [host, port] = to.split(" ");
  const script =
    options.protocol === "udp"
      ? `const u=require("dgram").createSocket("${host?.includes(":") ? "udp6" : "udp4"}");u.on("message",(m)=>{process.stdout.write(m);process.exit()});u.bind(${Number(options.source ?? 0)},()=>u.send("x",${port},"${host}"));setTimeout(()=>process.exit(),1300)`
      : `const s=require("net").connect({host:"${host}",port:${port}});s.pipe(process.stdout);s.on("error",()=>process.exit());setTimeout(()=>process.exit(),1300)`;
  const [program = "", ...args] = from.wrap([process.execPath, "-e", script]);
  return spawnSync(program, args, { encoding: "utf8" }).stdout.replace("::ffff:", "");
}

/** As `ask` over TCP for several targets at once, by one process. */
export async function askAll(from: Place, targets: readonly string[]): Promise<string[]> {
  const script = `const net=require("net");Promise.all(${JSON.stringify(targets)}.map((to)=>new Promise((done)=>{
    const [host,port]=to.split(" ");let seen="";
    const s=net.connect({host,port:Number(port)});
    s.on("data",(d)=>{seen+=d});s.on("error",()=>done(""));s.on("close",()=>done(seen));setTimeout(()=>done(""),1300);
  }))).then((all)=>{console.log(JSON.stringify(all));process.exit()})`;
  const [program = "", ...args] = from.wrap([process.execPath, "-e", script]);
  const child = spawn(program, args, { stdio: ["ignore", "pipe", "inherit"] });
  let output = "";
  child.stdout.on("data", (data: Buffer) => {
    output += data.toString();
  });
  await once(child, "close");
  return (JSON.parse(output) as string[]).map((text) => text.replace("::ffff:", ""));
}

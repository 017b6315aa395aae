/** Which queue an operation waits in: CHECK waits with ADD. */
export type QueueName = "add" | "del";

interface Call {
  readonly queue: QueueName;
  readonly started: number;
  running: boolean;
}

/** An operation from its arrival on; disposing of it ends it. */
export interface CallUnderway extends Disposable {
  /** It waits no longer: neither for its container's lock nor for a place among the running. */
  runs(): void;
}

/** The operations under way: how many wait, for whatever, and how old the oldest is. */
export class CallsUnderway {
  readonly #calls = new Set<Call>();

  begin(verb: "ADD" | "CHECK" | "DEL"): CallUnderway {
    const queue = verb === "DEL" ? "del" : "add";
    const call: Call = { queue, started: performance.now(), running: false };
    this.#calls.add(call);
    return {
      runs: () => {
        call.running = true;
      },
      [Symbol.dispose]: () => {
        this.#calls.delete(call);
      },
    };
  }

  /** Operations that wait for a lock or for their turn. */
  waiting(queue: QueueName): number {
    return [...this.#calls].filter((call) => call.queue === queue && !call.running).length;
  }

  /** Seconds since the oldest operation arrived, waiting or not; 0: there is none. */
  oldest(queue: QueueName): number {
    const times = [...this.#calls].filter((call) => call.queue === queue).map((one) => one.started);
    return times.length === 0 ? 0 : (performance.now() - Math.min(...times)) / 1000;
  }
}

// Driver for node-redlock. Reads requests from stdin; see interop/README.md for the protocol.
"use strict";

const readline = require("node:readline");
const Redis = require("ioredis");
const { default: Redlock } = require("redlock");

const FOREVER = -1;
const RETRY_MS = 20;

const redis = new Redis(process.argv[2]);
const redlock = new Redlock([redis], { retryDelay: RETRY_MS, retryJitter: 0 });
// Each refused attempt also emits an event. The promise has the result of the whole call.
redlock.on("error", () => {});

const writeLine = (line) => process.stdout.write(`${line}\n`);

// The workers by thread name. Each runs its requests in order.
const threads = new Map();

class Worker {
  locks = new Map();
  last = Promise.resolve();

  run(id, words) {
    this.last = this.last
      .then(() => this.call(...words))
      .then((value) => writeLine(`${id} ok ${value}`))
      .catch((error) => writeLine(`${id} error ${error.constructor.name} ${error.message.replace(/\s+/g, " ")}`));
  }

  async call(kind, name, method, ...words) {
    if (kind !== "lock") throw new TypeError(`there is no object ${kind}`);
    const numbers = words.map(Number);
    switch (method) {
      case "acquire":
        return this.acquire(name, ...numbers);
      case "extend":
        this.locks.set(name, await this.held(name).extend(numbers[0]));
        return "-";
      case "release":
        await this.held(name).release();
        this.locks.delete(name);
        return "-";
      default:
        throw new TypeError(`a lock has no ${method}`);
    }
  }

  // Tries for about `wait` milliseconds, or without limit if it is -1. Returns the value of the key.
  async acquire(name, lease, wait = FOREVER) {
    const retryCount = wait === FOREVER ? -1 : Math.ceil(wait / RETRY_MS);
    const lock = await redlock.acquire(name.split(","), lease, { retryCount });
    this.locks.set(name, lock);
    return lock.value;
  }

  held(name) {
    const lock = this.locks.get(name);
    if (!lock) throw new Error(`${name} was never acquired here`);
    return lock;
  }
}

async function main() {
  await redis.ping();
  writeLine("ready");
  for await (const line of readline.createInterface({ input: process.stdin })) {
    const [id, thread, ...words] = line.split(" ");
    if (words[0] === "quit") {
      writeLine(`${id} ok -`);
      break;
    }
    if (!threads.has(thread)) threads.set(thread, new Worker());
    threads.get(thread).run(id, words);
  }
  process.exit(0);
}

main();

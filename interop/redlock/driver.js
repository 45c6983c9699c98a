// Drives node-redlock by lines on stdin; the lines are described in interop/README.md.
"use strict";

const readline = require("node:readline");
const Redis = require("ioredis");
const { default: Redlock } = require("redlock");

const FOREVER = -1;
const RETRY_MS = 20;

const redis = new Redis(process.argv[2]);
const redlock = new Redlock([redis], { retryDelay: RETRY_MS, retryJitter: 0 });
// Each refused try is also an event; what came of the whole is told by the promise.
redlock.on("error", () => {});

const say = (line) => process.stdout.write(`${line}\n`);

// What each named thread holds, and the end of its last request: one request after the other.
const threads = new Map();

class Worker {
  locks = new Map();
  last = Promise.resolve();

  run(id, words) {
    this.last = this.last
      .then(() => this.call(...words))
      .then((value) => say(`${id} ok ${value}`))
      .catch((error) => say(`${id} error ${error.constructor.name} ${error.message.replace(/\s+/g, " ")}`));
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

  // Tries for about `wait` milliseconds, or as long as it takes; gives the value that the key then has.
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
  say("ready");
  for await (const line of readline.createInterface({ input: process.stdin })) {
    const [id, thread, ...words] = line.split(" ");
    if (words[0] === "quit") {
      say(`${id} ok -`);
      break;
    }
    if (!threads.has(thread)) threads.set(thread, new Worker());
    threads.get(thread).run(id, words);
  }
  process.exit(0);
}

main();

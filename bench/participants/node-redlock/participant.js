// node-redlock as a participant of the benchmark; bench/README.md describes the protocol.
//
// A task is an async function; all share one ioredis connection to one server. The settings are the defaults, which retry
// after 100 to 300 ms; only the number of retries is unlimited.
"use strict";

const fs = require("node:fs");
const readline = require("node:readline");
const { setImmediate: yieldToOthers, setTimeout: sleep } = require("node:timers/promises");
const Redis = require("ioredis");
const { default: Redlock, ResourceLockedError } = require("redlock");

const UNLIMITED_RETRIES = { retryCount: -1 };

// CLOCK_MONOTONIC on Linux, in nanoseconds.
const now = () => process.hrtime.bigint();
const since = (start) => Number(now() - start);
const send = (line) => process.stdout.write(`${line}\n`);

// The arguments `key=value`. Unknown keys are ignored.
class Settings {
  constructor(args) {
    this.values = new Map(args.map((arg) => [arg.slice(0, arg.indexOf("=")), arg.slice(arg.indexOf("=") + 1)]));
  }

  text(key, defaultValue) {
    return this.values.get(key) ?? defaultValue;
  }

  number(key, defaultValue) {
    return Number(this.text(key, defaultValue));
  }
}

// The counts of all tasks.
class Tally {
  errors = 0;
  firstError = "";
  nanos = [];

  constructor(tasks) {
    this.perTask = new Array(tasks).fill(0);
  }

  turn(task, nanos) {
    this.perTask[task] += 1;
    if (nanos !== undefined) this.nanos.push(nanos);
  }

  error(what) {
    this.firstError ||= String(what);
    this.errors += 1;
  }

  report(start) {
    const reply = {
      turns: this.perTask.reduce((sum, turns) => sum + turns, 0),
      seconds: since(start) / 1e9,
      errors: this.errors,
      first_error: this.firstError,
      per_task: this.perTask,
      nanos: this.nanos,
      direct: [],
    };
    send(JSON.stringify(reply));
  }
}

class Participant {
  constructor(settings, lines) {
    this.settings = settings;
    this.lines = lines;
    this.name = settings.text("lock", "lock");
    this.tasks = settings.number("tasks", 1);
    this.turns = settings.number("turns", 0);
    this.seconds = settings.number("seconds", 10);
    this.lease = settings.number("lease_ms", 30_000);
    this.tally = new Tally(this.tasks);
    this.redis = new Redis({ host: "127.0.0.1", port: settings.number("port", 6379) });
    this.redlock = new Redlock([this.redis]);
    // A failure is reported by the call that it affects.
    this.redis.on("error", () => {});
    // Each refused attempt is an event too. Count only the others, which unlimited retries would hide.
    this.redlock.on("error", (error) => {
      if (!(error instanceof ResourceLockedError)) this.tally.error(error);
    });
  }

  acquire(name) {
    return this.redlock.acquire([name], this.lease, UNLIMITED_RETRIES);
  }

  async warmUp() {
    for (let pair = this.settings.number("warm_up", 0); pair > 0; pair--) {
      await (await this.acquire(`${this.name}:warm`)).release();
    }
  }

  async readyAndWait() {
    send("ready");
    await this.lines.next();
  }

  // Starts all tasks. The promise resolves once all are done.
  start(body) {
    return Promise.all(Array.from({ length: this.tasks }, (_, task) => body(task)));
  }

  // Counts an exception, so that the task continues with its next attempt.
  async attempt(body) {
    try {
      await body();
    } catch (error) {
      this.tally.error(error);
    }
  }

  async pairs() {
    await this.warmUp();
    await this.readyAndWait();
    const start = now();
    await this.start(async (task) => {
      const name = `${this.name}:${task}`;
      const share = Math.floor(this.turns / this.tasks) + (task < this.turns % this.tasks ? 1 : 0);
      for (let turn = 0; turn < share; turn++) {
        const requested = now();
        await this.attempt(async () => {
          await (await this.acquire(name)).release();
          this.tally.turn(task, this.tasks === 1 ? since(requested) : undefined);
        });
      }
    });
    this.tally.report(start);
  }

  async contend() {
    const counter = fs.openSync(this.settings.text("counter"), "r+");
    let left = this.turns || Infinity;
    await this.warmUp();
    await this.readyAndWait();
    const start = now();
    // A task that waits when the time is over still acquires the lock once: an acquire cannot be cancelled.
    await this.start(async (task) => {
      while (since(start) < this.seconds * 1e9 && left-- > 0) {
        const requested = now();
        await this.attempt(async () => {
          const lock = await this.acquire(this.name);
          const waited = since(requested);
          await increment(counter);
          this.tally.turn(task, waited);
          await lock.release();
        });
      }
    });
    this.tally.report(start);
  }

  async herd() {
    await this.warmUp();
    await this.readyAndWait();
    const held = await this.acquire(this.name);
    let releasedAt;
    let done = 0;
    const waiters = this.start((task) =>
      this.attempt(async () => {
        const lock = await this.acquire(this.name);
        if (releasedAt === undefined) throw new Error("granted while it was held");
        this.tally.turn(task, since(releasedAt));
        await lock.release();
        done += 1;
      }),
    );
    await sleep(this.settings.number("hold_ms", 1000));
    releasedAt = now();
    await held.release();
    await Promise.race([waiters, sleep(this.seconds * 1000)]);
    if (done < this.tasks) this.tally.error(`${this.tasks - done} tasks did not finish in time`);
    this.tally.report(releasedAt);
  }

  async wakeup() {
    await this.warmUp();
    let held;
    send("ready");
    for await (const command of this.lines) {
      if (command === "lock") {
        held = await this.acquire(this.name);
        send("ok");
      } else if (command === "unlock") {
        const before = now();
        await held.release();
        send(before);
      } else if (command === "wait") {
        send("waiting");
        const lock = await this.acquire(this.name);
        const granted = now();
        await lock.release();
        send(granted);
      }
    }
  }

  // The library renews only locks of `using`, 500 ms before the lease is over.
  async hold() {
    const locks = Array.from({ length: this.settings.number("locks", 1) }, (_, lock) => `${this.name}:${lock}`);
    await Promise.all(
      locks.map(
        (name) =>
          new Promise((acquired) => {
            const routine = (lost) => {
              lost.addEventListener("abort", () => this.tally.error(`${name} is lost`));
              acquired();
              return new Promise(() => {});
            };
            this.redlock.using([name], this.lease, UNLIMITED_RETRIES, routine).catch((error) => this.tally.error(error));
          }),
      ),
    );
    await this.readyAndWait();
    const start = now();
    await sleep(this.seconds * 1000);
    this.tally.report(start);
  }
}

async function increment(counter) {
  const bytes = Buffer.alloc(8);
  fs.readSync(counter, bytes, 0, 8, 0);
  await yieldToOthers();
  bytes.writeBigUInt64LE(bytes.readBigUInt64LE() + 1n);
  fs.writeSync(counter, bytes, 0, 8, 0);
}

// Returns why the workload is not supported, or undefined.
function unsupported(workload, settings) {
  if (!["pairs", "contend", "herd", "wakeup", "hold"].includes(workload)) return `there is no workload ${workload}`;
  const kind = settings.text("kind", "lock");
  return kind === "lock" ? undefined : `node-redlock has no lock of kind ${kind}`;
}

async function main() {
  const [workload, ...args] = process.argv.slice(2);
  const settings = new Settings(args);
  const reason = unsupported(workload, settings);
  if (reason) {
    send(JSON.stringify({ unsupported: reason }));
    return;
  }
  const lines = readline.createInterface({ input: process.stdin })[Symbol.asyncIterator]();
  const participant = new Participant(settings, lines);
  // Unlimited retries would hide a missing server.
  await participant.redis.ping();
  await participant[workload]();
  while (!(await lines.next()).done);
  process.exit(0);
}

main();

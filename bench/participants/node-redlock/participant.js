// node-redlock as a participant of the benchmark; the works and lines are described in bench/README.md.
//
// A task is an async function; all share one connection of ioredis, on one server. The settings are the defaults, which
// are to try again after 100 to 300 ms; only the number of tries to take a lock has no end.
"use strict";

const fs = require("node:fs");
const readline = require("node:readline");
const { setImmediate: yieldToOthers, setTimeout: sleep } = require("node:timers/promises");
const Redis = require("ioredis");
const { default: Redlock, ResourceLockedError } = require("redlock");

const ENDLESS = { retryCount: -1 };

// CLOCK_MONOTONIC on Linux, in nanoseconds.
const now = () => process.hrtime.bigint();
const since = (start) => Number(now() - start);
const say = (line) => process.stdout.write(`${line}\n`);

// The words `key=value`. Those that nobody asks for are ignored.
class Settings {
  constructor(words) {
    this.values = new Map(words.map((word) => [word.slice(0, word.indexOf("=")), word.slice(word.indexOf("=") + 1)]));
  }

  text(key, missing) {
    return this.values.get(key) ?? missing;
  }

  number(key, missing) {
    return Number(this.text(key, missing));
  }
}

// What came of the work so far.
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
    say(JSON.stringify(reply));
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
    // What goes wrong is told by the call that was made.
    this.redis.on("error", () => {});
    // Each refused try is an event, too; others are what an endless number of tries would hide.
    this.redlock.on("error", (error) => {
      if (!(error instanceof ResourceLockedError)) this.tally.error(error);
    });
  }

  take(name) {
    return this.redlock.acquire([name], this.lease, ENDLESS);
  }

  async warmUp() {
    for (let pair = this.settings.number("warm_up", 0); pair > 0; pair--) {
      await (await this.take(`${this.name}:warm`)).release();
    }
  }

  async readyAndGo() {
    say("ready");
    await this.lines.next();
  }

  // Starts all tasks; the answer is there once all are done.
  start(work) {
    return Promise.all(Array.from({ length: this.tasks }, (_, task) => work(task)));
  }

  // What the work throws is counted, so that the task goes on with its next turn.
  async attempt(work) {
    try {
      await work();
    } catch (error) {
      this.tally.error(error);
    }
  }

  async pairs() {
    await this.warmUp();
    await this.readyAndGo();
    const start = now();
    await this.start(async (task) => {
      const name = `${this.name}:${task}`;
      const share = Math.floor(this.turns / this.tasks) + (task < this.turns % this.tasks ? 1 : 0);
      for (let turn = 0; turn < share; turn++) {
        const asked = now();
        await this.attempt(async () => {
          await (await this.take(name)).release();
          this.tally.turn(task, this.tasks === 1 ? since(asked) : undefined);
        });
      }
    });
    this.tally.report(start);
  }

  async contend() {
    const counter = fs.openSync(this.settings.text("counter"), "r+");
    let left = this.turns || Infinity;
    await this.warmUp();
    await this.readyAndGo();
    const start = now();
    // Who waits when the time is over still has its turn: an acquire cannot be called off.
    await this.start(async (task) => {
      while (since(start) < this.seconds * 1e9 && left-- > 0) {
        const asked = now();
        await this.attempt(async () => {
          const lock = await this.take(this.name);
          const waited = since(asked);
          await countUp(counter);
          this.tally.turn(task, waited);
          await lock.release();
        });
      }
    });
    this.tally.report(start);
  }

  async herd() {
    await this.warmUp();
    await this.readyAndGo();
    const held = await this.take(this.name);
    let givenBack;
    let done = 0;
    const waiters = this.start((task) =>
      this.attempt(async () => {
        const lock = await this.take(this.name);
        if (givenBack === undefined) throw new Error("granted while another held it");
        this.tally.turn(task, since(givenBack));
        await lock.release();
        done += 1;
      }),
    );
    await sleep(this.settings.number("hold_ms", 1000));
    givenBack = now();
    await held.release();
    await Promise.race([waiters, sleep(this.seconds * 1000)]);
    if (done < this.tasks) this.tally.error(`${this.tasks - done} tasks were not done in time`);
    this.tally.report(givenBack);
  }

  async hand() {
    await this.warmUp();
    let held;
    say("ready");
    for await (const order of this.lines) {
      if (order === "lock") {
        held = await this.take(this.name);
        say("ok");
      } else if (order === "unlock") {
        const before = now();
        await held.release();
        say(before);
      } else if (order === "wait") {
        say("waiting");
        const lock = await this.take(this.name);
        const granted = now();
        await lock.release();
        say(granted);
      }
    }
  }

  // The library renews only what it runs a routine under, 500 ms before the lease is over.
  async keep() {
    const locks = Array.from({ length: this.settings.number("locks", 1) }, (_, lock) => `${this.name}:${lock}`);
    await Promise.all(
      locks.map(
        (name) =>
          new Promise((taken) => {
            const hold = (lost) => {
              lost.addEventListener("abort", () => this.tally.error(`${name} is lost`));
              taken();
              return new Promise(() => {});
            };
            this.redlock.using([name], this.lease, ENDLESS, hold).catch((error) => this.tally.error(error));
          }),
      ),
    );
    await this.readyAndGo();
    const start = now();
    await sleep(this.seconds * 1000);
    this.tally.report(start);
  }
}

async function countUp(counter) {
  const bytes = Buffer.alloc(8);
  fs.readSync(counter, bytes, 0, 8, 0);
  await yieldToOthers();
  bytes.writeBigUInt64LE(bytes.readBigUInt64LE() + 1n);
  fs.writeSync(counter, bytes, 0, 8, 0);
}

// Why this work cannot be done, if so.
function cannot(work, settings) {
  if (!["pairs", "contend", "herd", "hand", "keep"].includes(work)) return `there is no work ${work}`;
  const kind = settings.text("kind", "lock");
  return kind === "lock" ? undefined : `node-redlock has no lock of kind ${kind}`;
}

async function main() {
  const [work, ...words] = process.argv.slice(2);
  const settings = new Settings(words);
  const reason = cannot(work, settings);
  if (reason) {
    say(JSON.stringify({ cannot: reason }));
    return;
  }
  const lines = readline.createInterface({ input: process.stdin })[Symbol.asyncIterator]();
  const participant = new Participant(settings, lines);
  // Without a server, the endless tries would hide it.
  await participant.redis.ping();
  await participant[work]();
  while (!(await lines.next()).done);
  process.exit(0);
}

main();

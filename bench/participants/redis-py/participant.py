"""redis-py's lock as a participant of the benchmark; bench/README.md describes the protocol.

A task is a thread. The lock has its defaults: it retries every 100 ms without a limit.
"""

import json
import os
import sys
import threading
import time

import redis

# Small, so that a thousand threads fit.
STACK_BYTES = 256 * 1024
# How long tasks may take to notice that the time is over, and to release the lock.
GRACE_SECONDS = 60


class Settings:
    """The arguments `key=value`. Unknown keys are ignored."""

    def __init__(self, arguments):
        self.values = dict(argument.split("=", 1) for argument in arguments)

    def text(self, key, default=""):
        return self.values.get(key, default)

    def number(self, key, default):
        return int(self.values.get(key, default))


class Tally:
    """The counts of all tasks. Each task has counts of its own, so that tasks do not contend."""

    def __init__(self, tasks):
        self.turns = [0] * tasks
        self.nanos = [[] for _ in range(tasks)]
        self.errors = []

    def turn(self, task, nanos=None):
        if nanos is not None:
            self.nanos[task].append(nanos)
        self.turns[task] += 1

    def error(self, what):
        self.errors.append(str(what) or repr(what))

    def report(self, since):
        """Prints the report as one line of JSON."""
        reply = {
            "turns": sum(self.turns),
            "seconds": (now() - since) / 1e9,
            "errors": len(self.errors),
            "first_error": self.errors[0] if self.errors else "",
            "per_task": self.turns,
            "nanos": [nanos for task in self.nanos for nanos in task],
            "direct": ["set"],
        }
        send(json.dumps(reply))


class Budget:
    """The number of attempts that all tasks together may still make."""

    def __init__(self, turns):
        self.left = turns or sys.maxsize
        self.guard = threading.Lock()

    def take(self):
        with self.guard:
            self.left -= 1
            return self.left >= 0


class Participant:
    def __init__(self, settings):
        self.settings = settings
        self.name = settings.text("lock", "lock")
        self.tasks = settings.number("tasks", 1)
        self.turns = settings.number("turns", 0)
        self.seconds = settings.number("seconds", 10)
        # The default pool has at most 100 connections, and every thread beyond that fails.
        self.client = redis.Redis(
            host="127.0.0.1", port=settings.number("port", 6379), max_connections=self.tasks + 100
        )
        self.tally = Tally(self.tasks)

    def lock(self, name):
        return self.client.lock(name, timeout=self.settings.number("lease_ms", 30_000) / 1000)

    def warm_up(self):
        lock = self.lock(f"{self.name}:warm")
        for _ in range(self.settings.number("warm_up", 0)):
            lock.acquire()
            lock.release()

    def pairs(self):
        self.warm_up()
        ready_and_wait()
        start = now()
        join(self.start(self.run_pairs))
        self.tally.report(start)

    def run_pairs(self, task):
        lock = self.lock(f"{self.name}:{task}")
        share = self.turns // self.tasks + (task < self.turns % self.tasks)
        for _ in range(share):
            requested = now()
            try:
                lock.acquire()
                lock.release()
                self.tally.turn(task, now() - requested if self.tasks == 1 else None)
            except redis.RedisError as error:
                self.tally.error(error)

    def contend(self):
        counter = os.open(self.settings.text("counter"), os.O_RDWR)
        budget = Budget(self.turns)
        self.warm_up()
        ready_and_wait()
        start = now()
        end = start + self.seconds * 1_000_000_000

        def take_turns(task):
            lock = self.lock(self.name)
            while (requested := now()) < end and budget.take():
                try:
                    # Gives up when the time is over: to serve a thousand waiting threads would take minutes.
                    if lock.acquire(blocking_timeout=(end - requested) / 1e9):
                        waited = now() - requested
                        increment(counter)
                        self.tally.turn(task, waited)
                        lock.release()
                except redis.RedisError as error:
                    self.tally.error(error)

        self.unfinished(join(self.start(take_turns), self.seconds + GRACE_SECONDS))
        self.tally.report(start)

    def herd(self):
        self.warm_up()
        ready_and_wait()
        held = self.lock(self.name)
        held.acquire()
        released_at = None

        def take_once(task):
            lock = self.lock(self.name)
            try:
                lock.acquire()
                granted = now()
                if released_at is None:
                    self.tally.error("granted while it was held")
                else:
                    self.tally.turn(task, granted - released_at)
                lock.release()
            except redis.RedisError as error:
                self.tally.error(error)

        waiters = self.start(take_once)
        time.sleep(self.settings.number("hold_ms", 1000) / 1000)
        released_at = now()
        held.release()
        self.unfinished(join(waiters, self.seconds))
        self.tally.report(released_at)

    def wakeup(self):
        self.warm_up()
        lock = self.lock(self.name)
        send("ready")
        for command in map(str.strip, sys.stdin):
            if command == "lock":
                lock.acquire()
                send("ok")
            elif command == "unlock":
                before = now()
                lock.release()
                send(before)
            elif command == "wait":
                send("waiting")
                lock.acquire()
                granted = now()
                lock.release()
                send(granted)

    def start(self, body):
        threads = [threading.Thread(target=body, args=(task,), daemon=True) for task in range(self.tasks)]
        for thread in threads:
            thread.start()
        return threads

    def unfinished(self, tasks):
        if tasks:
            self.tally.error(f"{tasks} tasks did not finish in time")


def increment(counter):
    count = int.from_bytes(os.pread(counter, 8, 0), "little")
    os.pwrite(counter, (count + 1).to_bytes(8, "little"), 0)


def join(threads, seconds=None):
    """Waits for all threads, or for `seconds`. Returns the number of those that still run."""
    end = None if seconds is None else time.monotonic() + seconds
    for thread in threads:
        thread.join(None if end is None else max(0.0, end - time.monotonic()))
    return sum(thread.is_alive() for thread in threads)


def ready_and_wait():
    send("ready")
    sys.stdin.readline()


def send(line):
    print(line, flush=True)


def now():
    """CLOCK_MONOTONIC on Linux."""
    return time.monotonic_ns()


def unsupported(workload, settings):
    """Returns why the workload is not supported, or None."""
    if workload == "hold":
        return "redis-py does not renew its locks"
    if workload not in ("pairs", "contend", "herd", "wakeup"):
        return f"there is no workload {workload}"
    kind = settings.text("kind", "lock")
    return None if kind == "lock" else f"redis-py has no lock of kind {kind}"


def main():
    workload, settings = sys.argv[1], Settings(sys.argv[2:])
    reason = unsupported(workload, settings)
    if reason:
        send(json.dumps({"unsupported": reason}))
        return
    threading.stack_size(STACK_BYTES)
    getattr(Participant(settings), workload)()
    sys.stdin.read()
    # Without joining threads that still wait.
    os._exit(0)


if __name__ == "__main__":
    main()

"""redis-py's lock as a participant of the benchmark; the works and lines are described in bench/README.md.

A task is a thread. The lock has its defaults, which are to try again every 100 ms without end.
"""

import json
import os
import sys
import threading
import time

import redis

# Room for what a task does; a thousand of them are to fit.
STACK_BYTES = 256 * 1024
# How long tasks may take to notice that the time is over, and to end their turn.
GRACE_SECONDS = 60


class Settings:
    """The words `key=value`. Those that nobody asks for are ignored."""

    def __init__(self, words):
        self.values = dict(word.split("=", 1) for word in words)

    def text(self, key, default=""):
        return self.values.get(key, default)

    def number(self, key, default):
        return int(self.values.get(key, default))


class Tally:
    """What came of the work so far. Each task has places of its own, so that they need not wait for each other."""

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
        """One line of JSON."""
        reply = {
            "turns": sum(self.turns),
            "seconds": (now() - since) / 1e9,
            "errors": len(self.errors),
            "first_error": self.errors[0] if self.errors else "",
            "per_task": self.turns,
            "nanos": [nanos for task in self.nanos for nanos in task],
            "direct": ["set"],
        }
        say(json.dumps(reply))


class Tickets:
    """As many turns as may be taken in all tasks together."""

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
        # The default pool ends at 100 connections, and every thread beyond that fails.
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
        ready_and_go()
        start = now()
        join(self.start(self.some_pairs))
        self.tally.report(start)

    def some_pairs(self, task):
        lock = self.lock(f"{self.name}:{task}")
        share = self.turns // self.tasks + (task < self.turns % self.tasks)
        for _ in range(share):
            asked = now()
            try:
                lock.acquire()
                lock.release()
                self.tally.turn(task, now() - asked if self.tasks == 1 else None)
            except redis.RedisError as error:
                self.tally.error(error)

    def contend(self):
        counter = os.open(self.settings.text("counter"), os.O_RDWR)
        tickets = Tickets(self.turns)
        self.warm_up()
        ready_and_go()
        start = now()
        end = start + self.seconds * 1_000_000_000

        def take_turns(task):
            lock = self.lock(self.name)
            while (asked := now()) < end and tickets.take():
                try:
                    # Gives up when the time is over: a thousand threads that still want a turn would take minutes.
                    if lock.acquire(blocking_timeout=(end - asked) / 1e9):
                        waited = now() - asked
                        count_up(counter)
                        self.tally.turn(task, waited)
                        lock.release()
                except redis.RedisError as error:
                    self.tally.error(error)

        self.missed(join(self.start(take_turns), self.seconds + GRACE_SECONDS))
        self.tally.report(start)

    def herd(self):
        self.warm_up()
        ready_and_go()
        held = self.lock(self.name)
        held.acquire()
        given_back = None

        def take_once(task):
            lock = self.lock(self.name)
            try:
                lock.acquire()
                granted = now()
                if given_back is None:
                    self.tally.error("granted while another held it")
                else:
                    self.tally.turn(task, granted - given_back)
                lock.release()
            except redis.RedisError as error:
                self.tally.error(error)

        waiters = self.start(take_once)
        time.sleep(self.settings.number("hold_ms", 1000) / 1000)
        given_back = now()
        held.release()
        self.missed(join(waiters, self.seconds))
        self.tally.report(given_back)

    def hand(self):
        self.warm_up()
        lock = self.lock(self.name)
        say("ready")
        for order in map(str.strip, sys.stdin):
            if order == "lock":
                lock.acquire()
                say("ok")
            elif order == "unlock":
                before = now()
                lock.release()
                say(before)
            elif order == "wait":
                say("waiting")
                lock.acquire()
                granted = now()
                lock.release()
                say(granted)

    def start(self, work):
        threads = [threading.Thread(target=work, args=(task,), daemon=True) for task in range(self.tasks)]
        for thread in threads:
            thread.start()
        return threads

    def missed(self, tasks):
        if tasks:
            self.tally.error(f"{tasks} tasks were not done in time")


def count_up(counter):
    count = int.from_bytes(os.pread(counter, 8, 0), "little")
    os.pwrite(counter, (count + 1).to_bytes(8, "little"), 0)


def join(threads, seconds=None):
    """Waits for all, or so long; gives the number of those that still run."""
    end = None if seconds is None else time.monotonic() + seconds
    for thread in threads:
        thread.join(None if end is None else max(0.0, end - time.monotonic()))
    return sum(thread.is_alive() for thread in threads)


def ready_and_go():
    say("ready")
    sys.stdin.readline()


def say(line):
    print(line, flush=True)


def now():
    """CLOCK_MONOTONIC on Linux."""
    return time.monotonic_ns()


def cannot(work, settings):
    """Why this work cannot be done, if so."""
    if work == "keep":
        return "a lock of redis-py does not renew itself"
    if work not in ("pairs", "contend", "herd", "hand"):
        return f"there is no work {work}"
    kind = settings.text("kind", "lock")
    return None if kind == "lock" else f"redis-py has no lock of kind {kind}"


def main():
    work, settings = sys.argv[1], Settings(sys.argv[2:])
    reason = cannot(work, settings)
    if reason:
        say(json.dumps({"cannot": reason}))
        return
    threading.stack_size(STACK_BYTES)
    getattr(Participant(settings), work)()
    sys.stdin.read()
    # Threads that still wait are not waited for.
    os._exit(0)


if __name__ == "__main__":
    main()

"""Drives redis-py's lock by lines on stdin; the lines are described in interop/README.md."""

import queue
import sys
import threading

import redis
from redis.lock import Lock

FOREVER = -1


class Worker:
    """A thread that does one request after the other; redis-py keeps a lock's token by thread."""

    def __init__(self, client):
        self.client = client
        self.locks = {}
        self.requests = queue.Queue()
        threading.Thread(target=self.loop, daemon=True).start()

    def loop(self):
        while True:
            number, words = self.requests.get()
            try:
                reply(f"{number} ok {self.call(*words)}")
            except Exception as error:
                reply(f"{number} error {type(error).__name__} {' '.join(str(error).split())}")

    def call(self, kind, name, method, *arguments):
        if kind != "lock":
            raise ValueError(f"there is no object {kind}")
        numbers = [int(argument) for argument in arguments]
        if method == "acquire":
            return self.acquire(name, *numbers)
        lock = self.locks.get(name) or self.lock(name, FOREVER)
        if method == "release":
            return lock.release() or "-"
        if method == "extend":
            return word(lock.extend(numbers[0] / 1000, replace_ttl=True))
        if method in ("reacquire", "locked", "owned"):
            return word(getattr(lock, method)())
        raise ValueError(f"a lock has no {method}")

    def acquire(self, name, lease=FOREVER, wait=FOREVER):
        """Waits at most `wait` milliseconds, or as long as it takes; a `wait` of 0 tries once."""
        lock = self.lock(name, lease)
        limit = None if wait in (0, FOREVER) else wait / 1000
        acquired = lock.acquire(blocking=wait != 0, blocking_timeout=limit)
        if acquired:
            self.locks[name] = lock
        return word(acquired)

    def lock(self, name, lease):
        return Lock(self.client, name, timeout=None if lease == FOREVER else lease / 1000, sleep=0.02)


def word(answer):
    return str(answer).lower()


writing = threading.Lock()


def reply(line):
    with writing:
        print(line, flush=True)


def main(address):
    client = redis.Redis.from_url(address)
    client.ping()
    workers = {}
    reply("ready")
    for line in sys.stdin:
        number, thread, *words = line.split()
        if words == ["quit"]:
            return reply(f"{number} ok -")
        if thread not in workers:
            workers[thread] = Worker(client)
        workers[thread].requests.put((number, words))


main(sys.argv[1])

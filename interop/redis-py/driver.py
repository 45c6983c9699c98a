"""Driver for redis-py's lock. Reads requests from stdin; see interop/README.md for the protocol."""

import queue
import sys
import threading

import redis
from redis.lock import Lock

FOREVER = -1


class Worker:
    """A thread that runs its requests in order; redis-py stores the token of a lock per thread."""

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
            return lowercase(lock.extend(numbers[0] / 1000, replace_ttl=True))
        if method in ("reacquire", "locked", "owned"):
            return lowercase(getattr(lock, method)())
        raise ValueError(f"a lock has no {method}")

    def acquire(self, name, lease=FOREVER, wait=FOREVER):
        """Waits at most `wait` milliseconds, or without limit if it is -1; a `wait` of 0 tries once."""
        lock = self.lock(name, lease)
        limit = None if wait in (0, FOREVER) else wait / 1000
        acquired = lock.acquire(blocking=wait != 0, blocking_timeout=limit)
        if acquired:
            self.locks[name] = lock
        return lowercase(acquired)

    def lock(self, name, lease):
        return Lock(self.client, name, timeout=None if lease == FOREVER else lease / 1000, sleep=0.02)


def lowercase(result):
    return str(result).lower()


stdout_lock = threading.Lock()


def reply(line):
    with stdout_lock:
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

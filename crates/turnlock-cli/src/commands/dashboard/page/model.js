// What the page knows: the locks, and what follows from them.

import { clientKey, identity, setClock, visible } from './text.js';

const MAX_RATES = 300;
/** The most locks that are free now and that the page of a lock can still show. */
const MAX_FREE = 200;

export class Model {
  locks = new Map();
  names = new Map();
  rates = [];
  deadlocks = [];
  /** Whether all that clients announced was searched for them: `complete`, `partial` or `denied`. */
  deadlockSearch = 'complete';
  /** `false` if the last query did not reach all locks. */
  complete = true;
  outage = undefined;
  at = 0;
  loaded = false;
  #offset = 0;
  #clients = undefined;
  #sequence = 0;
  #leaseSequence = 0;
  #free = [];

  constructor() {
    setClock(() => this.now());
  }

  /** The time of the server. */
  now() {
    return Date.now() + this.#offset;
  }

  /** Counts up with each difference of a lock that the list shows. */
  get sequence() {
    return this.#sequence;
  }

  /** The same, and with each lease that was renewed. */
  get leaseSequence() {
    return this.#sequence + this.#leaseSequence;
  }

  applySnapshot({ at, now, outage, complete, locks, rates, deadlocks, deadlock_search: search }) {
    this.#tell(at, now, complete, search);
    this.outage = outage ?? undefined;
    this.#free = [];
    this.locks = new Map(locks.map((lock) => [lock.id, this.#prepare(lock)]));
    this.names = new Map(locks.map((lock) => [lock.name, lock]));
    this.rates = rates;
    this.deadlocks = deadlocks ?? [];
    this.loaded = true;
    this.#touch();
  }

  applyChange({ at, complete, grants, set, gone, leases, deadlocks, deadlock_search: search }) {
    const isOther = complete !== this.complete;
    this.#tell(at, at, complete, search);
    for (const lock of gone.map((id) => this.locks.get(id)).filter((lock) => lock)) {
      this.locks.delete(lock.id);
      // Another object: the page of the lock sees that it differs.
      const free = { ...lock, locked: false, holders: [], waiters: [], queue: [], everyone: [], ends: undefined, search: undefined };
      this.names.set(lock.name, free);
      this.#free.push(free);
    }
    while (this.#free.length > MAX_FREE) {
      const oldest = this.#free.shift();
      // It can be held again.
      if (this.names.get(oldest.name) === oldest) this.names.delete(oldest.name);
    }
    for (const lock of set) {
      this.locks.set(lock.id, this.#prepare(lock));
      this.names.set(lock.name, lock);
    }
    for (const [id, ttl, lease] of leases) {
      const lock = this.locks.get(id);
      if (lock) Object.assign(lock, { ends: ttl === null ? undefined : at + ttl, lease_ms: lease });
    }
    this.rates = [...this.rates, [at, grants]].slice(-MAX_RATES);
    if (deadlocks) this.deadlocks = deadlocks;
    if (leases.length) this.#leaseSequence += 1;
    if (set.length || gone.length || deadlocks || isOther) this.#touch();
  }

  applyOutage({ now, error }) {
    this.#offset = now - Date.now();
    this.outage = error;
  }

  /** Whether the state of this name is known: a query that is not complete does not tell that a lock is free. */
  isKnown(name) {
    return this.complete || this.locks.has(this.names.get(name)?.id);
  }

  /** All clients that hold or wait, by their key. */
  get clients() {
    if (this.#clients) return this.#clients;
    const clients = new Map();
    const entry = (person) => {
      const key = clientKey(person.owner);
      if (!clients.has(key)) clients.set(key, { key, name: visible(key), isNamed: false, holds: [], waits: [] });
      const client = clients.get(key);
      if (person.host && !client.isNamed) Object.assign(client, { name: identity(person), isNamed: true });
      return client;
    };
    for (const lock of this.locks.values()) {
      for (const holder of lock.holders) entry(holder).holds.push({ lock, holder });
      for (const waiter of waitersOf(lock)) entry(waiter).waits.push({ lock, waiter });
    }
    this.#clients = clients;
    return clients;
  }

  #tell(at, now, complete, deadlockSearch) {
    this.#offset = now - Date.now();
    Object.assign(this, { at, complete, deadlockSearch });
    this.outage = undefined;
  }

  #touch() {
    this.#clients = undefined;
    this.#sequence += 1;
  }

  #prepare(lock) {
    const end = ({ ttl_ms: ttl }) => (ttl === null ? undefined : this.at + ttl);
    lock.ends = end(lock);
    lock.holders.forEach((holder, index) => Object.assign(holder, { ends: end(holder), seen_ms: lock.hold_seen_ms[index] }));
    const times = lock.holders.map((holder) => Date.parse(holder.since)).filter((time) => time);
    lock.since = times.length ? times.reduce((one, other) => Math.min(one, other)) : undefined;
    return lock;
  }
}

/** Who waits for a lock. */
export function waitersOf(lock) {
  if (lock.everyone) return lock.everyone;
  const { waiters, queue } = lock;
  // Of most locks, so that thousands of them are fast.
  if (!queue.length) return (lock.everyone = waiters);
  // The queue of a fair lock has the order; who has announced a wait has its time.
  const announced = new Map(waiters.map((wait) => [wait.owner, wait]));
  const queued = new Set(queue.map((waiter) => waiter.owner));
  lock.everyone = [...queue.map((waiter) => ({ ...waiter, ...announced.get(waiter.owner) })), ...waiters.filter((wait) => !queued.has(wait.owner))];
  return lock.everyone;
}

/** What a search compares with, in lower case. */
export function searchText(lock) {
  lock.search ??= [lock.name, lock.kind, ...[...lock.holders, ...waitersOf(lock)].map((person) => `${identity(person)} ${person.owner}`)].join('\n').toLowerCase();
  return lock.search;
}

// The page of one lock.

import { html, section } from './dom.js';
import { graph, outline } from './graph.js';
import { waitersOf } from './model.js';
import { bars, dots } from './plot.js';
import { age, clientLink, identity, leaseBar, measured, plural, setAge, setLease, timeOfDay, visible } from './text.js';
import { confirmUnlock } from './unlock.js';

/** The bars of the plot of grants. */
const BUCKETS = 60;
const SHORTEST_SPAN = 60_000;
const SHOWN_HOLDS = 50;
/** How many holders and waiters are drawn. */
const SHOWN_PEOPLE = 500;

export class LockPage {
  element;
  #model;
  #connection;
  #name;
  #holds = [];
  #sequence = -1;
  /** The lock when the holds that are shown were requested. */
  #known = null;
  #isLoading = false;
  #isClosed = false;

  constructor(model, connection, name) {
    this.#model = model;
    this.#connection = connection;
    this.#name = name;
    this.facts = section((data) => this.#buildFacts(data));
    this.holders = section(({ known }) => this.#buildHolders(known));
    this.waiters = section(() => this.#buildWaiters());
    this.graph = section((data) => this.#buildGraph(data));
    this.plots = section(() => this.#buildPlots());
    this.history = section((data) => this.#buildHistory(data.holds));
    this.element = html('article', { class: 'lock-page' },
      html('p', { class: 'back' }, html('a', { href: '#/' }, '← All locks')),
      html('h1', { class: 'name', id: 'lock-title' }, visible(name)),
      this.facts.element,
      html('div', { class: 'columns' },
        card('Holders', this.holders.element), card('Waiters', this.waiters.element),
        card('Who waits for whom', this.graph.element, 'wide'),
        card('Throughput and waits', this.plots.element, 'wide'),
        card('Recent holds', this.history.element, 'wide')));
  }

  get title() {
    return visible(this.#name);
  }

  opened() {
    this.update();
  }

  closed() {
    this.#isClosed = true;
  }

  get #lock() {
    return this.#model.names.get(this.#name);
  }

  update() {
    const lock = this.#lock;
    const { kind, token, holders = [] } = lock ?? {};
    const known = this.#model.isKnown(this.#name);
    this.facts.update({ loaded: this.#model.loaded, known, kind, token, held: holders.length > 0, available: lock?.available });
    this.holders.update({ known, people: holders.map(lasting) });
    const waiters = lock ? waitersOf(lock) : [];
    this.waiters.update(waiters.map(lasting));
    this.#showTimes(lock, waiters);
    if (this.#sequence !== this.#model.sequence) {
      this.#sequence = this.#model.sequence;
      this.graph.update(outline(this.#model, this.#name));
    }
    this.#loadHolds();
    this.plots.update([this.#holds, Math.floor(this.#model.now() / 5_000)]);
  }

  /** Loads the holds if the lock differs, one request at a time: on a slow link, a busy lock differs before each response. */
  async #loadHolds() {
    const lock = this.#lock;
    // A lock that differs is another object.
    if (this.#known === lock || !this.#model.loaded || this.#isLoading || this.#isClosed) return;
    this.#isLoading = true;
    const holds = await this.#connection.get(`/api/holds/=${encodeURIComponent(this.#name)}`).catch(() => undefined);
    this.#isLoading = false;
    // The next message repeats a request that failed.
    if (!holds) return;
    this.#known = lock;
    this.#holds = holds;
    this.history.update({ holds });
    this.plots.update([holds, 0]);
    this.#loadHolds();
  }

  /** Shows ages and leases without building anything again: they are different with each renewal. */
  #showTimes(lock, waiters) {
    this.holders.element.querySelectorAll('li').forEach((item, index) => {
      const holder = lock.holders[index];
      setAge(item.querySelector('.age'), Date.parse(holder.since) || undefined, lock.holders.length === 1 ? lock.seen_ms : undefined);
      setLease(item.querySelector('.lease'), holder.ends ?? lock.ends, lock.lease_ms);
    });
    this.waiters.element.querySelectorAll('li').forEach((item, index) => {
      const time = item.querySelector('.age');
      if (time) setAge(time, Date.parse(waiters[index].since));
    });
  }

  #buildFacts({ loaded, known, kind, token, held, available }) {
    if (!loaded) return html('p', { class: 'facts-line' }, 'Loading…');
    if (!known) return html('p', { class: 'facts-line' }, html('span', { class: 'state free' }, 'not reached'), 'This lock is not among those that were found, and the list is not complete.');
    if (!kind) return html('p', { class: 'facts-line' }, 'This lock is not held.');
    const facts = [html('span', { class: 'kind', 'data-kind': kind }, kind)];
    // A semaphore and a latch have no holder, but a number.
    if (held || !['semaphore', 'latch'].includes(kind)) facts.push(html('span', { class: held ? 'state held' : 'state free' }, held ? 'held' : 'free'));
    if (token !== null && token !== undefined) facts.push(html('span', { class: 'fact' }, `token ${token}`));
    if (available !== null && available !== undefined) facts.push(html('span', { class: 'fact' }, kind === 'latch' ? `count ${available}` : `${available} available`));
    return html('p', { class: 'facts-line' }, facts);
  }

  #buildHolders(known) {
    const lock = this.#lock;
    if (!lock?.holders.length) return html('p', { class: 'none' }, known ? 'No holder.' : 'Not known.');
    return [html('ul', { class: 'people' }, lock.holders.slice(0, SHOWN_PEOPLE).map((holder) => html('li', {},
      html('div', { class: 'person' },
        html('a', { href: clientLink(holder.owner), 'data-focus': `client ${holder.owner}` }, identity(holder)),
        holder.mode !== 'exclusive' && html('span', { class: 'fact' }, holder.mode),
        holder.count > 1 && html('span', { class: 'fact' }, `${holder.count} times`),
        holder.stuck && html('span', { class: 'fact stuck' }, 'stuck')),
      html('div', { class: 'owner' }, visible(holder.owner)),
      html('div', { class: 'line' },
        html('span', {}, 'held for ', age()), leaseBar(),
        holder.kept_until && html('span', { class: 'fact' }, `kept until ${timeOfDay(Date.parse(holder.kept_until))}`)),
      (holder.task || holder.call_site) && html('div', { class: 'line' },
        holder.task && html('span', { class: 'fact' }, visible(holder.task)),
        holder.call_site && html('span', { class: 'owner' }, visible(holder.call_site))),
      this.#connection.session?.allow_unlock && html('button', {
        type: 'button', class: 'danger small', 'data-focus': `unlock ${holder.mode} ${holder.owner}`, 'aria-label': `Unlock ${visible(lock.name)}, held by ${identity(holder)}${inMode(holder)}`,
        onclick: () => confirmUnlock(this.#connection, this.#lock ?? lock, holder),
      }, 'Unlock…')))), notShown(lock.holders)];
  }

  #buildWaiters() {
    const lock = this.#lock;
    const waiters = lock ? waitersOf(lock) : [];
    if (!waiters.length) return html('p', { class: 'none' }, 'No waiter is known.');
    const since = (waiter) => Date.parse(waiter.since) || undefined;
    return [html('ol', { class: 'people' }, waiters.slice(0, SHOWN_PEOPLE).map((waiter) => html('li', {},
      html('div', { class: 'person' }, html('a', { href: clientLink(waiter.owner), 'data-focus': `client ${waiter.owner}` }, identity(waiter))),
      html('div', { class: 'owner' }, visible(waiter.owner)),
      (since(waiter) || waiter.task || waiter.call_site) && html('div', { class: 'line' },
        since(waiter) && html('span', {}, 'waits for ', age()),
        waiter.task && html('span', { class: 'fact' }, visible(waiter.task)),
        waiter.call_site && html('span', { class: 'owner' }, visible(waiter.call_site)))))), notShown(waiters)];
  }

  #buildGraph(data) {
    if (!data.nodes.length) return html('p', { class: 'none' }, 'Nothing to draw.');
    return [html('div', { class: 'scroll', tabindex: '0', role: 'group', 'aria-label': 'Wait graph', 'data-focus': 'scroll' }, graph(data)),
      html('p', { class: 'legend' }, 'Solid: held by. Dashed: waits for.', data.isCut && ' Not all are shown.')];
  }

  #buildPlots() {
    const now = this.#model.now();
    const holds = this.#holds;
    const from = Math.min(now - SHORTEST_SPAN, holds.length ? Math.max(holds[0].from_ms, now - 3_600_000) : now);
    const span = (now - from) / BUCKETS;
    const counts = Array.from({ length: BUCKETS }, (_, index) => [from + index * span, 0]);
    for (const hold of holds.filter(({ is_older: isOlder }) => !isOlder)) {
      const index = Math.floor((hold.from_ms - from) / span);
      if (counts[index]) counts[index][1] += 1;
    }
    counts.push([now, 0]);
    const recent = holds.filter((hold) => hold.from_ms >= from);
    const waits = recent.filter((hold) => hold.waited_ms !== null).map((hold) => [hold.from_ms, hold.waited_ms]);
    const held = recent.filter((hold) => hold.until_ms && !hold.is_older).map((hold) => [hold.from_ms, hold.until_ms - hold.from_ms]);
    const figure = (caption, picture) => html('figure', {}, picture, html('figcaption', {}, caption));
    return html('div', { class: 'plots' },
      figure('Grants seen', bars(counts, { label: 'Grants seen' })),
      figure('Time waited before a grant', dots(waits, { label: 'Time waited', from, to: now })),
      figure('Time held', dots(held, { label: 'Time held', from, to: now })));
  }

  #buildHistory(holds) {
    if (!holds.length) return html('p', { class: 'none' }, 'No hold was seen yet.');
    const time = (hold) => (hold.until_ms ? (hold.is_older ? '> ' : '') + measured(hold.until_ms - hold.from_ms) : 'not known');
    const row = (hold) => html('tr', {},
      html('td', {}, hold.is_older && 'before ', timeOfDay(hold.from_ms)),
      html('td', {}, html('a', { href: clientLink(hold.owner), 'data-focus': `${hold.owner} ${hold.from_ms}` }, identity(hold)), inMode(hold)),
      html('td', { class: 'number' }, hold.is_held ? 'still held' : time(hold)),
      html('td', { class: 'number' }, hold.waited_ms === null ? '–' : measured(hold.waited_ms)));
    const latest = holds.toReversed().slice(0, SHOWN_HOLDS);
    return html('div', { class: 'scroll', tabindex: '0', role: 'group', 'aria-label': 'Recent holds', 'data-focus': 'scroll' }, html('table', {},
      html('caption', { class: 'unseen' }, `${plural(latest.length, 'hold')}, the latest first`),
      html('thead', {}, html('tr', {}, ['Since', 'Holder', 'Held for', 'Waited'].map((text) => html('th', { scope: 'col', class: /for|Waited/.test(text) && 'number' }, text)))),
      html('tbody', {}, latest.map(row))));
  }
}

/** What is shown of a holder or a waiter, without the times that are computed anew for each message. */
function lasting(person) {
  return { ...person, since: Boolean(Date.parse(person.since)), ends: undefined, ttl_ms: undefined, time_left_ms: undefined };
}

function inMode({ mode }) {
  return mode === 'exclusive' ? '' : ` (${mode})`;
}

function notShown(people) {
  return people.length > SHOWN_PEOPLE && html('p', { class: 'hint' }, `The first ${SHOWN_PEOPLE} of ${people.length} are shown.`);
}

export function card(title, content, kind = '') {
  const id = `card-${title.toLowerCase().replaceAll(' ', '-')}`;
  return html('section', { class: `card ${kind}`, 'aria-labelledby': id }, html('h2', { id }, title), content);
}

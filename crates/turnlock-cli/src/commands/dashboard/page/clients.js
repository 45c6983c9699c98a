// The list of clients, and the page of one client.

import { html, section, setText } from './dom.js';
import { card } from './lock.js';
import { age, leaseBar, lockLink, plural, setAge, setLease, visible } from './text.js';

/** More clients are not shown: the search finds them. */
const MAX_SHOWN = 300;
const MAX_LOCKS = 500;

export class ClientList {
  title = 'Clients';
  #model;

  constructor(model) {
    this.#model = model;
    this.search = html('input', { type: 'search', id: 'search', placeholder: 'Search host, process or label', 'aria-label': 'Search', autocomplete: 'off', spellcheck: 'false', oninput: () => this.update() });
    this.count = html('span', { class: 'count' });
    this.table = section(({ clients, complete }) => this.#build(clients, complete));
    this.element = html('section', { class: 'clients' }, html('h1', {}, 'Clients'), html('div', { class: 'toolbar', role: 'search' }, this.search, this.count), html('div', { class: 'card' }, this.table.element));
  }

  opened() {
    this.update();
  }

  closed() {}

  focusSearch() {
    this.search.focus();
  }

  update() {
    const text = this.search.value.toLowerCase();
    const found = [...this.#model.clients.values()].filter(({ name, key }) => name.toLowerCase().includes(text) || key.includes(text));
    found.sort((a, b) => b.waits.length - a.waits.length || b.holds.length - a.holds.length || (a.name < b.name ? -1 : 1));
    setText(this.count, found.length > MAX_SHOWN ? `${plural(found.length, 'client')}, ${MAX_SHOWN} shown` : plural(found.length, 'client'));
    const clients = found.slice(0, MAX_SHOWN).map(({ key, name, holds, waits }) => ({ key, name, holds: holds.length, waits: waits.length }));
    this.table.update({ clients, complete: this.#model.complete });
  }

  #build(clients, complete) {
    const none = complete ? 'No client holds a lock or waits for one.' : 'No client was found that holds a lock or waits for one. The list of locks is not complete.';
    if (!clients.length) return html('p', { class: 'none' }, none);
    const row = ({ key, name, holds, waits }) => html('tr', {},
      html('td', {}, html('a', { href: `#/client/${encodeURIComponent(key)}`, 'data-focus': key }, name)),
      html('td', { class: 'number' }, String(holds)),
      html('td', { class: 'number' }, waits ? html('span', { class: 'waiters some' }, String(waits)) : '–'));
    return html('div', { class: 'scroll' }, html('table', {},
      html('thead', {}, html('tr', {}, html('th', { scope: 'col' }, 'Client'), html('th', { scope: 'col', class: 'number' }, 'Holds'), html('th', { scope: 'col', class: 'number' }, 'Waits'))),
      html('tbody', {}, clients.map(row))));
  }
}

export class ClientPage {
  #model;
  #key;

  constructor(model, key) {
    this.#model = model;
    this.#key = key;
    this.heading = html('h1', { class: 'name' });
    this.started = html('p', { class: 'facts-line' });
    this.holds = section(({ names, complete }) => this.#build(names, complete, 'Holds', 'held for '));
    this.waits = section(({ names, complete }) => this.#build(names, complete, 'Waits for', 'waits for '));
    this.element = html('article', { class: 'client-page' },
      html('p', { class: 'back' }, html('a', { href: '#/clients' }, '← All clients')),
      this.heading, this.started,
      html('div', { class: 'columns' }, card('Holds', this.holds.element), card('Waits for', this.waits.element)));
  }

  get title() {
    return this.#client?.name ?? visible(this.#key);
  }

  opened() {
    this.update();
  }

  closed() {}

  get #client() {
    return this.#model.clients.get(this.#key);
  }

  update() {
    const client = this.#client;
    setText(this.heading, client?.name ?? visible(this.#key));
    const { complete } = this.#model;
    const absent = complete ? 'This client holds no lock, and is not known to wait for one.' : 'This client is not among those that were found, and the list of locks is not complete.';
    setText(this.started, client ? `Client ${visible(this.#key)}` : absent);
    const [holds, waits] = [client?.holds ?? [], client?.waits ?? []].map((found) => found.slice(0, MAX_LOCKS));
    const names = (found) => found.map(({ lock }) => lock.name);
    this.holds.update({ names: names(holds), complete });
    this.waits.update({ names: names(waits), complete });
    // Times are not built again: they are different with each renewal.
    this.holds.element.querySelectorAll('li').forEach((item, index) => {
      const { lock, holder } = holds[index];
      setAge(item.querySelector('.age'), Date.parse(holder.since) || undefined, lock.holders.length === 1 ? lock.seen_ms : undefined);
      setLease(item.querySelector('.lease'), holder.ends ?? lock.ends, lock.lease_ms);
    });
    this.waits.element.querySelectorAll('li').forEach((item, index) => {
      const since = Date.parse(waits[index].waiter.since) || undefined;
      setAge(item.querySelector('.age'), since);
      item.querySelector('.line').hidden = !since;
    });
  }

  #build(names, complete, verb, text) {
    if (!names.length) return html('p', { class: 'none' }, complete ? `${verb} no lock.` : `${verb} no lock that was found. The list of locks is not complete.`);
    const isHold = verb === 'Holds';
    return html('ul', { class: 'people' }, names.map((name) => html('li', {},
      html('div', { class: 'person name' }, html('a', { href: lockLink(name), 'data-focus': name }, visible(name))),
      html('div', { class: 'line' }, html('span', {}, text, age()), isHold && leaseBar()))));
  }
}

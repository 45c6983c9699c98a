// The list of locks. Only the rows that can be seen are elements, so that thousands of locks cost little.

import { announce, html, setText } from './dom.js';
import { searchText, waitersOf } from './model.js';
import { age, duration, identity, leaseBar, lockLink, plural, setAge, setLease, visible } from './text.js';
import { bars } from './plot.js';

/** Rows above and below the visible ones, for smooth scrolling. */
const OVERSCAN = 6;
const NARROW = matchMedia('(max-width: 720px)');

const ORDERS = {
  name: ['Name', (a, b) => (a.name < b.name ? -1 : a.name > b.name ? 1 : 0)],
  age: ['Longest held', (a, b) => (a.since ?? Infinity) - (b.since ?? Infinity) || 0],
  ttl: ['Shortest lease', (a, b) => (a.ends ?? Infinity) - (b.ends ?? Infinity) || 0],
  waiters: ['Most waiters', (a, b) => waitersOf(b).length - waitersOf(a).length],
};

const KINDS = ['lock', 'fair-lock', 'fenced-lock', 'spin-lock', 'plain-lock', 'read-write-lock', 'permit-semaphore', 'semaphore', 'latch'];

// Kept while other pages are shown. The selection is a name: ids are those of one process of the server.
const choice = { text: '', kind: '', order: 'name', waiting: false, selected: undefined, scroll: 0 };

export class LockList {
  element;
  #model;
  #shown = [];
  /** By the name of the lock. */
  #rows = new Map();
  #sequence = -1;
  #frame = undefined;
  #announced = undefined;

  constructor(model) {
    this.#model = model;
    const changed = () => this.#filterChanged();
    this.search = html('input', {
      type: 'search', id: 'search', placeholder: 'Search name, host, label or owner', 'aria-label': 'Search', autocomplete: 'off', spellcheck: 'false', 'aria-keyshortcuts': '/',
      oninput: changed, onkeydown: (event) => this.#searchKey(event),
    });
    this.search.value = choice.text;
    this.kind = html('select', { id: 'kind', 'aria-label': 'Kind', onchange: changed },
      html('option', { value: '' }, 'All kinds'), KINDS.map((kind) => html('option', { value: kind, selected: kind === choice.kind }, kind)));
    this.order = html('select', { id: 'order', 'aria-label': 'Order', onchange: changed },
      Object.entries(ORDERS).map(([key, [label]]) => html('option', { value: key, selected: key === choice.order }, label)));
    this.waiting = html('input', { type: 'checkbox', id: 'waiting', onchange: changed, checked: choice.waiting });
    this.count = html('span', { class: 'count', id: 'count' });
    this.tiles = html('div', { class: 'tiles' });
    this.spacer = html('div', { class: 'spacer', role: 'presentation' });
    this.empty = html('p', { class: 'empty', hidden: true });
    const headers = ['Lock', 'Kind', 'Holder', 'Held for', 'Lease', 'Waiters'];
    this.grid = html('div', { class: 'viewport', id: 'grid', role: 'grid', 'aria-label': 'Locks', tabindex: '0', onscroll: () => this.#scrolled(), onkeydown: (event) => this.#gridKey(event) },
      html('div', { class: 'row head', role: 'row', 'aria-rowindex': '1' }, headers.map((text) => html('span', { role: 'columnheader' }, text))),
      this.spacer, this.empty);
    this.element = html('section', { class: 'locks', 'aria-labelledby': 'locks-title' },
      html('h1', { id: 'locks-title', class: 'unseen' }, 'Locks'),
      this.tiles,
      html('div', { class: 'toolbar', role: 'search' }, this.search, this.kind, this.order,
        html('label', { class: 'check' }, this.waiting, 'Only with waiters'), this.count),
      this.grid);
    this.resize = () => this.#draw();
    addEventListener('resize', this.resize);
  }

  /** Called when the list is on the page. */
  opened() {
    this.update();
    this.grid.scrollTop = choice.scroll;
    this.#draw();
  }

  closed() {
    removeEventListener('resize', this.resize);
  }

  focusSearch() {
    this.search.focus();
    this.search.select();
  }

  update() {
    const sequence = choice.order === 'ttl' ? this.#model.leaseSequence : this.#model.sequence;
    if (this.#sequence !== sequence) {
      this.#sequence = sequence;
      this.#filter();
    } else {
      this.#draw();
    }
    this.#drawTiles();
  }

  #filterChanged() {
    Object.assign(choice, { text: this.search.value, kind: this.kind.value, order: this.order.value, waiting: this.waiting.checked });
    this.grid.scrollTop = 0;
    this.#filter();
    clearTimeout(this.#announced);
    this.#announced = setTimeout(() => announce(`${plural(this.#shown.length, 'lock')} shown`), 500);
  }

  #filter() {
    const words = choice.text.toLowerCase().split(/\s+/).filter((word) => word);
    const isShown = (lock) => (!choice.kind || lock.kind === choice.kind)
      && (!choice.waiting || waitersOf(lock).length > 0)
      && words.every((word) => searchText(lock).includes(word));
    const byName = ORDERS.name[1];
    const order = ORDERS[choice.order][1];
    this.#shown = [...this.#model.locks.values()].filter(isShown).sort((a, b) => order(a, b) || byName(a, b));
    const all = this.#model.locks.size;
    const part = this.#shown.length === all ? plural(all, 'lock') : `${this.#shown.length.toLocaleString('en')} of ${plural(all, 'lock')}`;
    setText(this.count, !this.#model.loaded ? '' : this.#model.complete ? part : `${part}, not complete`);
    this.grid.setAttribute('aria-rowcount', this.#shown.length + 1);
    this.empty.hidden = this.#shown.length > 0 || !this.#model.loaded;
    const none = all ? 'No lock passes the filters.' : 'No lock is held.';
    const noneFound = all ? 'No lock that was found passes the filters' : 'No lock was found';
    setText(this.empty, this.#model.complete ? none : `${noneFound}, and the list is not complete.`);
    this.#draw();
  }

  #scrolled() {
    choice.scroll = this.grid.scrollTop;
    this.#frame ??= requestAnimationFrame(() => this.#draw());
  }

  #rowHeight() {
    return NARROW.matches ? 66 : 38;
  }

  #draw() {
    cancelAnimationFrame(this.#frame);
    this.#frame = undefined;
    const height = this.#rowHeight();
    this.spacer.style.height = `${this.#shown.length * height}px`;
    const first = Math.max(0, Math.floor(this.grid.scrollTop / height) - OVERSCAN);
    const last = Math.min(this.#shown.length, Math.ceil((this.grid.scrollTop + this.grid.clientHeight) / height) + OVERSCAN);
    // A lock has its element for itself: a click opens the lock that was pressed, also if the order is another one meanwhile.
    const known = this.#rows;
    const drawn = this.#shown.slice(first, Math.max(first, last));
    this.#rows = new Map(drawn.map(({ name }) => [name, known.get(name) ?? new Row()]));
    known.forEach((row, name) => this.#rows.has(name) || row.element.remove());
    drawn.forEach((lock, index) => {
      const row = this.#rows.get(lock.name);
      row.show(lock, first + index, height, choice.selected);
      const at = this.spacer.children[index];
      if (at !== row.element) this.spacer.insertBefore(row.element, at ?? null);
    });
    const selected = this.#rows.get(choice.selected);
    if (selected) this.grid.setAttribute('aria-activedescendant', selected.element.id);
    else this.grid.removeAttribute('aria-activedescendant');
  }

  #drawTiles() {
    const locks = [...this.#model.locks.values()];
    const waiters = locks.reduce((sum, lock) => sum + waitersOf(lock).length, 0);
    const oldest = locks.reduce((found, lock) => (lock.since && (!found || lock.since < found.since) ? lock : found), undefined);
    const recent = this.#model.rates.filter(([at]) => at > this.#model.now() - 60_000);
    const grants = recent.reduce((sum, [, count]) => sum + count, 0);
    const tiles = [
      ['Held', locks.filter(({ locked }) => locked).length.toLocaleString('en')],
      ['Waiting', waiters.toLocaleString('en')],
      ['Clients', this.#model.clients.size.toLocaleString('en')],
      ['Longest held', oldest ? duration(this.#model.now() - oldest.since) : '–', oldest && lockLink(oldest.name)],
      ['Grants in a minute', grants.toLocaleString('en')],
    ];
    if (!this.tiles.children.length) {
      this.tiles.append(...tiles.map(([label]) => html('a', { class: 'tile' }, html('b'), html('span', {}, label))), html('div', { class: 'tile plot-tile' }));
    }
    tiles.forEach(([, value, link], index) => {
      const tile = this.tiles.children[index];
      setText(tile.firstChild, this.#model.loaded ? value : '–');
      if (link) tile.setAttribute('href', link);
      else tile.removeAttribute('href');
    });
    this.tiles.lastChild.replaceChildren(bars(this.#model.rates.slice(-90), { label: 'Grants seen by each query', small: true }));
  }

  #searchKey(event) {
    if (event.key === 'ArrowDown' || event.key === 'Enter') {
      this.grid.focus();
      this.#select(0);
    } else if (event.key === 'Escape' && this.search.value) {
      this.search.value = '';
      this.#filterChanged();
    } else {
      return;
    }
    event.preventDefault();
  }

  #gridKey(event) {
    const at = this.#shown.findIndex((lock) => lock.name === choice.selected);
    const page = Math.max(1, Math.floor(this.grid.clientHeight / this.#rowHeight()) - 2);
    const moves = { ArrowDown: at + 1, j: at + 1, ArrowUp: at - 1, k: at - 1, PageDown: at + page, PageUp: at - page, Home: 0, End: Infinity };
    if (event.ctrlKey || event.metaKey || event.altKey) return;
    if (event.key === 'Enter' && at >= 0) location.hash = lockLink(this.#shown[at].name);
    else if (event.key in moves) this.#select(moves[event.key]);
    else return;
    event.preventDefault();
  }

  #select(index) {
    if (!this.#shown.length) return;
    const at = Math.max(0, Math.min(this.#shown.length - 1, index));
    choice.selected = this.#shown[at].name;
    const height = this.#rowHeight();
    const head = NARROW.matches ? 0 : 30;
    const [top, bottom] = [at * height, (at + 1) * height + head];
    if (top < this.grid.scrollTop) this.grid.scrollTop = top;
    else if (bottom > this.grid.scrollTop + this.grid.clientHeight) this.grid.scrollTop = bottom - this.grid.clientHeight;
    this.#draw();
  }
}

class Row {
  constructor() {
    this.name = html('a', { class: 'name', tabindex: '-1' });
    this.kind = html('span', { class: 'kind' });
    this.stuck = html('span', { class: 'fact stuck', hidden: true }, 'stuck');
    this.holder = html('span', { class: 'holder' });
    this.age = age();
    this.lease = leaseBar();
    this.waiters = html('span', { class: 'waiters' });
    const cell = (child, name) => html('span', { role: 'gridcell', class: `cell ${name}` }, child);
    this.element = html('div', { class: 'row', role: 'row', onclick: (event) => this.#open(event) },
      cell(this.name, 'c-name'), cell(this.kind, 'c-kind'), cell([this.stuck, ' ', this.holder], 'c-holder'), cell(this.age, 'c-age'), cell(this.lease, 'c-lease'), cell(this.waiters, 'c-waiters'));
  }

  show(lock, index, height, selected) {
    this.element.style.transform = `translateY(${index * height}px)`;
    this.element.classList.toggle('odd', index % 2 === 1);
    this.element.setAttribute('aria-rowindex', index + 2);
    const isSelected = lock.name === selected;
    this.element.setAttribute('aria-selected', isSelected);
    if (this.lock !== lock) {
      this.lock = lock;
      this.element.id = `lock-${lock.id}`;
      setText(this.name, visible(lock.name));
      this.name.href = lockLink(lock.name);
      this.name.title = visible(lock.name);
      setText(this.kind, lock.kind ?? '');
      this.kind.dataset.kind = lock.kind ?? '';
      const [holder, ...others] = lock.holders;
      const text = holder ? identity(holder) + (others.length ? ` and ${others.length} more` : '') : '–';
      setText(this.holder, text);
      this.holder.title = text;
      const count = waitersOf(lock).length;
      setText(this.waiters, count ? String(count) : '');
      this.waiters.classList.toggle('some', count > 0);
      if (count) this.waiters.setAttribute('aria-label', plural(count, 'waiter'));
      else this.waiters.removeAttribute('aria-label');
      const isStuck = lock.holders.some((found) => found.stuck);
      this.element.classList.toggle('stuck', isStuck);
      this.stuck.hidden = !isStuck;
    }
    setAge(this.age, lock.since, lock.seen_ms);
    setLease(this.lease, lock.ends, lock.lease_ms);
  }

  #open(event) {
    // A link opens itself, and a selection of text is not a click.
    if (event.target.closest('a') || String(getSelection())) return;
    location.hash = lockLink(this.lock.name);
  }
}

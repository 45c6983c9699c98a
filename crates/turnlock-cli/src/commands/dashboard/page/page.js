// The page: routes, the connection, and what is above all pages.

import { ClientList, ClientPage } from './clients.js';
import { Connection } from './connection.js';
import { DoctorPage, loadReport, showBadge } from './doctor.js';
import { announce, html, section, setText } from './dom.js';
import { LockList } from './list.js';
import { LockPage } from './lock.js';
import { Model } from './model.js';
import { duration, identity, lockLink, message, plural, tick, visible } from './text.js';

const TICK = 1_000;
const STATES = { connecting: 'Connecting', live: 'Live', late: 'Late', outage: 'Query failed', lost: 'Not connected', full: 'Too many viewers: close other pages', paused: 'Paused' };
/** Without a message for so many intervals, or for this time if they are shorter, the page shows how old the list is. */
const LATE_INTERVALS = 3;
const LATE_SILENCE = 3_000;
/** The most deadlocks that are read to users of screen readers one by one. */
const MAX_READ = 2;
/** What is said if not all was searched for deadlocks. */
const SEARCHES = {
  partial: 'The search for deadlocks was not complete: more clients wait or hold locks than one query reads.',
  denied: 'Deadlocks are not known: this user of the store may not read what clients announce.',
};
/** The states that are read to users of screen readers, once. */
const ANNOUNCED = ['live', 'outage', 'lost', 'full'];

const main = document.getElementById('main');
const model = new Model();
let page;
let state = 'connecting';
let announced = 'live';
let mayUnlock;

const connection = new Connection({
  session(session) {
    setText(document.getElementById('store'), session.store);
    loadReport(connection);
    // Another process can have other flags, which decide on the buttons of a page.
    const isOther = mayUnlock !== session.allow_unlock;
    mayUnlock = session.allow_unlock;
    if (!page || page.isLogin || isOther) route();
  },
  snapshot(data) {
    model.applySnapshot(data);
    update();
  },
  change(data) {
    model.applyChange(data);
    update();
  },
  outage(data) {
    model.applyOutage(data);
    update();
  },
  state(next) {
    if (ANNOUNCED.includes(next) && next !== announced) {
      announced = next;
      announce(STATES[next]);
    }
    state = next;
    showState();
  },
  login: () => open(new Login()),
});

// Each is built again only if what it says is different: a screen reader reads it again then.
const outageAlert = section((outage) => (outage
  ? html('div', { class: 'alert outage', role: 'alert' }, html('b', {}, 'A query of the store failed. '), 'The list is as it was before. ', message(outage))
  : []));
const searchNote = section((text) => (text ? html('p', { class: 'alert note' }, text) : []));
const deadlockCount = section((text) => (text ? html('p', { class: 'alert deadlocks', role: 'alert' }, html('b', {}, text)) : []));
const deadlockAlerts = section((deadlocks) => deadlocks.map((deadlock) => deadlockAlert(deadlock, deadlocks.length <= MAX_READ)));
document.getElementById('alerts').append(...[outageAlert, searchNote, deadlockCount, deadlockAlerts].map(({ element }) => element));

function updateAlerts() {
  const { outage, deadlocks, deadlockSearch } = model;
  outageAlert.update(outage ?? '');
  searchNote.update(SEARCHES[deadlockSearch] ?? '');
  deadlockCount.update(deadlocks.length > MAX_READ ? plural(deadlocks.length, 'deadlock') : '');
  deadlockAlerts.update(deadlocks.map(({ certain, waiters }) => ({ certain, waiters: waiters.map(({ name, owner, host, pid, label, task }) => ({ name, owner, host, pid, label, task })) })));
}

function deadlockAlert({ certain, waiters: waits }, isRead) {
  const lockAnchor = (wait, role) => html('a', { class: 'name', href: lockLink(wait.name), 'data-focus': `${role} ${wait.owner}` }, visible(wait.name));
  const parts = waits.map((wait, index) => html('li', {},
    html('b', {}, identity(wait)), wait.task ? ` ${visible(wait.task)}` : '', ' holds ', waits.length > 1 ? lockAnchor(waits.at(index - 1), 'held') : 'it', ' and waits for ', lockAnchor(wait, 'wanted')));
  return html('section', { class: `alert deadlock ${certain ? 'certain' : 'possible'}`, role: isRead && 'alert' },
    html('b', {}, certain ? 'Deadlock' : 'Possible deadlock'), html('ol', {}, parts));
}

class Login {
  isLogin = true;
  title = 'Token';

  constructor() {
    this.input = html('input', { type: 'password', id: 'token', autocomplete: 'current-password', required: true });
    this.message = html('p', { class: 'outcome failed', role: 'alert' });
    this.element = html('form', { class: 'card login', onsubmit: (event) => this.#submit(event) },
      html('h1', {}, 'Token'), html('p', { class: 'hint' }, 'This dashboard needs the token of its --token-file.'),
      html('label', { for: 'token' }, 'Token'), this.input, this.message, html('button', { type: 'submit' }, 'Continue'));
  }

  opened() {
    this.input.focus();
    state = 'paused';
    showState();
  }

  closed() {}

  update() {}

  async #submit(event) {
    event.preventDefault();
    try {
      const isRight = await connection.login(this.input.value.trim());
      if (!isRight) setText(this.message, 'This is not the token.');
    } catch {
      setText(this.message, 'The dashboard does not reply.');
    }
  }
}

function route() {
  const [, kind, text] = /^#\/(\w*)\/?(.*)$/.exec(location.hash) ?? [];
  let argument = '';
  try {
    argument = decodeURIComponent(text ?? '');
  } catch {
    // Not a link of this page: the list is shown.
  }
  const active = { lock: 'locks', client: 'clients', clients: 'clients', doctor: 'doctor' }[kind] ?? 'locks';
  document.querySelectorAll('nav a').forEach((link) => {
    if (link.dataset.page === active) link.setAttribute('aria-current', 'page');
    else link.removeAttribute('aria-current');
  });
  if (kind === 'lock' && argument) open(new LockPage(model, connection, argument));
  else if (kind === 'client' && argument) open(new ClientPage(model, argument));
  else if (kind === 'clients') open(new ClientList(model));
  else if (kind === 'doctor') open(new DoctorPage(connection));
  else open(new LockList(model));
}

function open(next) {
  const isFirst = !page;
  page?.closed();
  document.getElementById('dialog').close();
  page = next;
  main.replaceChildren(page.element);
  document.title = page.title ? `${page.title} – turnlock` : 'turnlock';
  page.opened();
  // A screen reader begins to read the new page. The list keeps its selection.
  const isList = page instanceof LockList;
  if (isFirst || page.isLogin) return;
  if (isList) page.grid.focus();
  else main.focus();
  scrollTo(0, 0);
}

function update() {
  updateAlerts();
  page?.update();
}

function showState() {
  const element = document.getElementById('connection');
  const silence = model.now() - model.at;
  const limit = Math.max(LATE_SILENCE, LATE_INTERVALS * (connection.session?.interval_ms ?? 0));
  const isLate = model.at > 0 && (['lost', 'outage', 'full', 'paused'].includes(state) || silence > limit);
  const shown = isLate && state === 'live' ? 'late' : state;
  element.dataset.state = shown;
  setText(document.getElementById('connection-text'), isLate ? `${STATES[shown]} – as of ${duration(silence)} ago` : STATES[shown]);
}

document.getElementById('skip').addEventListener('click', () => main.focus());
addEventListener('hashchange', () => !page?.isLogin && route());
addEventListener('keydown', (event) => {
  const isTyping = event.target.closest?.('input, select, textarea, dialog');
  if (isTyping || event.ctrlKey || event.metaKey || event.altKey) return;
  if (event.key === '/' && page?.focusSearch) {
    event.preventDefault();
    page.focusSearch();
  } else if (event.key === 'Escape' && (page instanceof LockPage || page instanceof ClientPage)) {
    location.hash = page instanceof LockPage ? '#/' : '#/clients';
  }
});
setInterval(() => {
  tick();
  showBadge();
  showState();
}, TICK);
connection.open();

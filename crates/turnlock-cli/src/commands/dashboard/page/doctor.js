// The servers of the store, and the findings of the doctor.

import { announce, html, section, setText } from './dom.js';
import { card } from './lock.js';
import { age, duration, elapsed, message, plural, timeOfDay, visible } from './text.js';

/** The badge of findings that are older has their age: nothing examines the store again unless it is asked to. */
const OLD = 3_600_000;

const NO_REPLY = 'The dashboard does not reply.';

/** The last report that was received. */
let last;

const isProblem = ({ level }) => level === 'warning' || level === 'danger';

/** Loads the last report of the server, and shows its number of problems in the navigation. */
export async function loadReport(connection) {
  const report = await connection.get('/api/doctor').catch(() => undefined);
  // `null`: the checks of the start still run.
  if (report !== null) keep(report ?? { error: NO_REPLY });
}

/** Keeps a report. If its checks failed, what was found before stays, as in a report of the server. */
function keep(report) {
  last = report.findings ? report : { ...last, error: report.error, failed_at: report.failed_at };
  showBadge();
}

/** Shows the number of problems in the navigation, and how old it is. */
export function showBadge() {
  const badge = document.getElementById('doctor-badge');
  const problems = last?.findings?.filter(isProblem) ?? [];
  const ago = elapsed(last?.at);
  const when = ago > OLD ? `${duration(ago)} ago` : '';
  badge.hidden = !problems.length;
  setText(badge, [problems.length, when].filter((part) => part).join(', '));
  badge.classList.toggle('danger', problems.some(({ level }) => level === 'danger'));
  badge.setAttribute('role', 'img');
  badge.setAttribute('aria-label', [plural(problems.length, 'problem'), when].filter((part) => part).join(', '));
}

export class DoctorPage {
  title = 'Doctor';
  #connection;

  constructor(connection) {
    this.#connection = connection;
    const mayLock = connection.session?.allow_unlock;
    this.button = html('button', { type: 'button', onclick: () => this.#run() }, mayLock ? 'Run all checks' : 'Run the checks again');
    this.servers = section((report) => [this.#failure(report), this.#buildServers(report)].flat());
    this.findings = section((report) => [this.#failure(report), this.#buildFindings(report)].flat());
    this.element = html('section', { class: 'doctor' },
      html('div', { class: 'toolbar' }, html('h1', {}, 'Doctor'), this.button),
      html('p', { class: 'hint' }, 'The checks that only read ran at the start. ',
        mayLock ? 'All checks take some seconds, and lock names of their own for a moment.' : 'All checks, some of which lock names of their own for a moment: turnlock doctor.'),
      card('Findings', this.findings.element), card('Servers', this.servers.element));
  }

  async opened() {
    await loadReport(this.#connection);
    this.#show();
  }

  closed() {}

  update() {}

  async #run() {
    this.button.disabled = true;
    announce('The checks run');
    try {
      const response = await this.#connection.post('/api/doctor');
      const report = response.ok ? await response.json() : { error: await response.text() };
      keep(report);
    } catch {
      keep({ error: NO_REPLY });
    }
    this.#show();
    announce(last.error ? 'The checks failed' : `${plural(last.findings.filter(isProblem).length, 'problem')} found`);
    this.button.disabled = false;
    this.button.focus();
  }

  #show() {
    this.servers.update(last ?? null);
    this.findings.update(last ?? null);
  }

  #failure(report) {
    if (!report?.error) return [];
    const when = report.failed_at ? ` at ${timeOfDay(report.failed_at)}` : '';
    return html('p', { class: 'outcome failed' }, `The checks failed${when}: ${message(report.error)}`);
  }

  /** When what is shown was found. */
  #found(report) {
    return html('p', { class: 'hint' }, report.all ? 'All checks, ' : 'The checks that only read, ', `at ${timeOfDay(report.at)}, `, age(report.at), ' ago.');
  }

  #buildServers(report) {
    const servers = report?.servers;
    if (!servers) return html('p', { class: 'none' }, 'Not known.');
    if (!servers.length) return html('p', { class: 'none' }, 'The store has no servers.');
    const row = (server) => html('tr', {},
      html('td', { class: 'name' }, visible(server.address)), html('td', {}, visible(server.version ?? '–')), html('td', {}, visible(server.role ?? '–')),
      html('td', { class: 'number' }, String(server.replicas ?? '–')),
      html('td', { class: 'number' }, server.error ? message(server.error) : `${(server.latency_us / 1000).toFixed(2)} ms`));
    return [this.#found(report), html('div', { class: 'scroll' }, html('table', {},
      html('thead', {}, html('tr', {}, ['Address', 'Version', 'Role', 'Replicas', 'Latency'].map((text) => html('th', { scope: 'col', class: /Re|La/.test(text) && 'number' }, text)))),
      html('tbody', {}, servers.map(row))))];
  }

  #buildFindings(report) {
    if (!report?.findings) return html('p', { class: 'none' }, report?.error ? 'Not known.' : 'The checks still run.');
    const item = ({ level, topic, server, text }) => html('li', {},
      html('span', { class: 'level', 'data-level': level }, level), ' ', html('b', {}, visible(topic)), server && html('span', { class: 'fact' }, visible(server)),
      html('p', {}, message(text)));
    return [this.#found(report),
      html('ul', { class: 'findings' }, report.findings.map(item))];
  }
}

// Formats names, owners and times.

import { html, setText } from './dom.js';

// Control, format (direction, zero width), surrogate, private and unassigned characters, and separators of lines.
const HIDDEN = /[\p{C}\u2028\u2029\u115f\u1160\u3164\uffa0]|\p{M}{3,}/gu;

/** Shows a name, label or owner: characters that would hide or reverse text as in the output of the program, \n and \u{202e}. */
export function visible(text) {
  // So that an escape is never the text itself.
  return message(String(text).replaceAll('\\', '\\\\'));
}

/** The same for a sentence of the program, in which names are escaped already. */
export function message(text) {
  const escaped = (character) => {
    const short = { '\n': '\\n', '\r': '\\r', '\t': '\\t', '\0': '\\0' }[character];
    return short ?? `\\u{${character.codePointAt(0).toString(16)}}`;
  };
  return String(text).replace(HIDDEN, (found) => [...found].map(escaped).join(''));
}

/** `340ms`, `28s`, `2m 13s`, `3h 5m`, `4d 2h`. */
export function duration(millis) {
  const seconds = Math.floor(Math.max(0, millis) / 1000);
  const two = (large, unit, small, smallUnit) => (small ? `${large}${unit} ${small}${smallUnit}` : `${large}${unit}`);
  if (seconds < 1) return `${Math.max(0, Math.round(millis))}ms`;
  if (seconds < 60) return `${seconds}s`;
  if (seconds < 3600) return two(Math.floor(seconds / 60), 'm', seconds % 60, 's');
  if (seconds < 86400) return two(Math.floor(seconds / 3600), 'h', Math.floor((seconds % 3600) / 60), 'm');
  return two(Math.floor(seconds / 86400), 'd', Math.floor((seconds % 86400) / 3600), 'h');
}

/** The same with tenths of a second, for short times that were measured. */
export function measured(millis) {
  return millis >= 1_000 && millis < 10_000 ? `${(millis / 1_000).toFixed(1)}s` : duration(millis);
}

/** The local time of day, and the date if it is not today. */
export function timeOfDay(millis) {
  const time = new Date(millis);
  const text = time.toLocaleTimeString(undefined, { hour12: false });
  return time.toDateString() === new Date().toDateString() ? text : `${time.toLocaleDateString()} ${text}`;
}

/** `host:pid (label)`; the owner id if nothing else is known. */
export function identity({ host, pid, label, owner }) {
  if (!host) return visible(owner ?? 'unknown');
  const address = pid ? `${host}:${pid}` : host;
  return visible(label ? `${address} (${label})` : address);
}

/** Which client an owner belongs to: its id, or the whole id of a permit. */
export function clientKey(owner) {
  const at = owner.lastIndexOf(':');
  return at > 0 ? owner.slice(0, at) : owner;
}

export function plural(count, one, many = `${one}s`) {
  return `${count.toLocaleString('en')} ${count === 1 ? one : many}`;
}

export const lockLink = (name) => `#/lock/${encodeURIComponent(name)}`;
export const clientLink = (owner) => `#/client/${encodeURIComponent(clientKey(owner))}`;

let clock = () => Date.now();

/** Sets the clock: that of the server, since browsers can have another time. */
export function setClock(now) {
  clock = now;
}

/** How long ago a time of the server was, in milliseconds. */
export const elapsed = (millis) => clock() - millis;

/** An element that shows how long ago a time was. If that is not known: when it was seen first, as `> 5s`. */
export function age(since, seen) {
  const element = html('span', { class: 'age' });
  setAge(element, since, seen);
  return element;
}

/** A bar that shows how much of a lease is left, and its text. */
export function leaseBar(ends, lease) {
  const bar = html('span', { class: 'lease', role: 'img' }, html('span', { class: 'lease-fill' }), html('span', { class: 'lease-text' }));
  setLease(bar, ends, lease);
  return bar;
}

export function setAge(element, since, seen) {
  element.dataset.since = since ?? seen ?? '';
  element.dataset.prefix = since ? '' : '> ';
  tickAge(element);
}

export function setLease(bar, ends, lease) {
  bar.dataset.ends = ends ?? '';
  bar.dataset.lease = lease ?? '';
  tickLease(bar);
}

function tickAge(element) {
  const since = Number(element.dataset.since);
  setText(element, since ? element.dataset.prefix + duration(elapsed(since)) : '–');
}

function tickLease(bar) {
  const [fill, text] = bar.children;
  const ends = Number(bar.dataset.ends);
  if (!ends) {
    setText(text, 'no lease');
    fill.style.width = '0';
    bar.setAttribute('aria-label', 'no lease');
    return;
  }
  const rest = Math.max(0, ends - clock());
  const share = Math.min(1, rest / Math.max(1, Number(bar.dataset.lease) || rest));
  fill.style.width = `${(share * 100).toFixed(1)}%`;
  bar.classList.toggle('low', share < 0.25);
  setText(text, duration(rest));
  bar.setAttribute('aria-label', `lease ends in ${duration(rest)}`);
}

/** Updates all ages and leases on the page. */
export function tick() {
  document.querySelectorAll('[data-since]').forEach(tickAge);
  document.querySelectorAll('[data-ends]').forEach(tickLease);
}

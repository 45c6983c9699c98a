// Who waits for whom, as a picture: clients wait for locks (dashed), and locks are held by clients (solid).

import { svg } from './dom.js';
import { waitersOf } from './model.js';
import { clientKey, identity, lockLink, visible } from './text.js';

const MAX_NODES = 40;
const MAX_CHARS = 26;
const NODE = { width: 190, height: 34 };
const GAP = { x: 70, y: 14 };

/** What the graph around one lock has: its nodes and edges, and which of them are in a deadlock with it. */
export function outline(model, name) {
  const waits = model.deadlocks.map(({ waiters }) => waiters).filter((waiters) => waiters.some((wait) => wait.name === name)).flat();
  const inCycle = new Set(waits.flatMap((wait) => [`lock ${wait.name}`, `client ${clientKey(wait.owner)}`]));
  const { nodes, edges, isCut } = explore(model, name);
  const shown = [...edges.values()].filter(({ from, to }) => nodes.has(from) && nodes.has(to));
  return {
    nodes: [...nodes.values()].map((node) => ({ ...node, isFocus: node.lock === name, isCycle: inCycle.has(node.id) })),
    edges: shown.map((edge) => ({ ...edge, isCycle: inCycle.has(edge.from) && inCycle.has(edge.to) })),
    isCut,
  };
}

/** Draws an outline. */
export function graph({ nodes: outlined, edges }) {
  const nodes = new Map(outlined.map((node) => [node.id, { ...node }]));
  const layers = [...new Set(outlined.map((node) => node.layer))].sort((a, b) => a - b);
  const columns = layers.map((layer) => [...nodes.values()].filter((node) => node.layer === layer));
  const tallest = Math.max(...columns.map((column) => column.length));
  columns.forEach((column, x) => {
    column.forEach((node, y) => {
      node.x = x * (NODE.width + GAP.x) + 2;
      node.y = (y + (tallest - column.length) / 2) * (NODE.height + GAP.y) + 2;
    });
  });
  const width = columns.length * (NODE.width + GAP.x) - GAP.x + 4;
  const height = tallest * (NODE.height + GAP.y) + 10;
  const sentence = ({ from, to, waits }) => `${nodes.get(from).text} ${waits ? 'waits for' : 'is held by'} ${nodes.get(to).text}`;
  const label = `Wait graph: ${edges.map(sentence).join('; ') || 'no holder and no waiter'}`;
  // Not an image: its links have the focus in turn.
  const picture = svg('svg', { class: 'graph', viewBox: `0 0 ${width} ${height}`, width, height, role: 'group', 'aria-label': label },
    svg('defs', {}, arrow('arrow'), arrow('arrow-wait'), arrow('arrow-cycle')));
  for (const edge of edges) picture.append(draw(edge, nodes));
  for (const node of nodes.values()) picture.append(box(node));
  return picture;
}

function explore(model, name) {
  const nodes = new Map();
  const edges = new Map();
  let isCut = false;
  const queue = [];
  const visit = (id, layer, facts) => {
    if (nodes.has(id)) return;
    if (nodes.size >= MAX_NODES) {
      isCut = true;
      return;
    }
    nodes.set(id, { id, layer, ...facts });
    queue.push(id);
  };
  const connect = (from, to, waits) => edges.set(`${from}>${to}`, { from, to, waits });
  const visitLock = (lock, layer) => visit(`lock ${lock.name}`, layer, { lock: lock.name, text: visible(lock.name) });
  const visitClient = (person, layer) => visit(`client ${clientKey(person.owner)}`, layer, { client: clientKey(person.owner), text: identity(person) });
  const first = model.names.get(name);
  if (first) visitLock(first, 0);
  while (queue.length) {
    const node = nodes.get(queue.shift());
    if (node.lock !== undefined) {
      const lock = model.names.get(node.lock);
      for (const holder of lock.holders) {
        visitClient(holder, node.layer + 1);
        connect(node.id, `client ${clientKey(holder.owner)}`, false);
      }
      for (const waiter of waitersOf(lock)) {
        visitClient(waiter, node.layer - 1);
        connect(`client ${clientKey(waiter.owner)}`, node.id, true);
      }
    } else {
      const client = model.clients.get(node.client);
      // Of a client that holds many locks, those that others wait for.
      for (const { lock } of client?.holds ?? []) if (waitersOf(lock).length) visitLock(lock, node.layer - 1);
      for (const { lock } of client?.waits ?? []) visitLock(lock, node.layer + 1);
    }
  }
  return { nodes, edges, isCut };
}

function arrow(id) {
  return svg('marker', { id, viewBox: '0 0 8 8', refX: 7, refY: 4, markerWidth: 7, markerHeight: 7, orient: 'auto-start-reverse' }, svg('path', { d: 'M0 0L8 4L0 8z', class: id }));
}

function draw({ from, to, waits, isCycle }, nodes) {
  const [a, b] = [nodes.get(from), nodes.get(to)];
  const kind = isCycle ? 'cycle' : waits ? 'wait' : 'hold';
  const forward = b.x > a.x;
  const [x1, x2] = forward ? [a.x + NODE.width, b.x] : [a.x, b.x + NODE.width];
  const [y1, y2] = [a.y + NODE.height / 2, b.y + NODE.height / 2];
  // Backwards, the line of a wait passes above that of a hold.
  const bend = forward ? Math.max(20, (x2 - x1) / 2) : -Math.max(20, (x1 - x2) / 2);
  const marker = { cycle: 'arrow-cycle', wait: 'arrow-wait', hold: 'arrow' }[kind];
  return svg('path', { class: `edge ${kind}`, d: `M${x1} ${y1}C${x1 + bend} ${y1} ${x2 - bend} ${y2} ${x2} ${y2}`, 'marker-end': `url(#${marker})` });
}

function box({ id, x, y, lock, client, text, isFocus, isCycle }) {
  const short = text.length > MAX_CHARS ? `${text.slice(0, MAX_CHARS - 1)}…` : text;
  const isLock = lock !== undefined;
  const href = isLock ? lockLink(lock) : `#/client/${encodeURIComponent(client)}`;
  return svg('a', { href, 'data-focus': id, class: `node ${isLock ? 'lock' : 'client'}${isFocus ? ' focus' : ''}${isCycle ? ' cycle' : ''}` },
    svg('title', {}, text),
    svg('rect', { x, y, width: NODE.width, height: NODE.height, rx: isLock ? 6 : NODE.height / 2 }),
    svg('text', { x: x + NODE.width / 2, y: y + NODE.height / 2 + 4, 'text-anchor': 'middle' }, short));
}

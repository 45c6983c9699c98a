// Small plots, as pictures with a text for those who do not see them.

import { svg } from './dom.js';
import { duration, measured } from './text.js';

const WIDTH = 480;
const HEIGHT = 120;
const LEFT = 44;
const BOTTOM = 18;

/** Bars of counts: pairs of a time and a number. */
export function bars(points, { label, small = false }) {
  const highest = Math.max(1, ...points.map(([, count]) => count));
  const sum = points.reduce((total, [, count]) => total + count, 0);
  const [left, bottom, height] = small ? [0, 0, 40] : [LEFT, BOTTOM, HEIGHT];
  const step = (WIDTH - left) / Math.max(1, points.length);
  const picture = svg('svg', {
    class: small ? 'plot small' : 'plot', viewBox: `0 0 ${WIDTH} ${height}`, role: 'img', 'aria-label': `${label}: ${sum} in all, at most ${highest}`,
    preserveAspectRatio: small ? 'none' : 'xMidYMid meet',
  });
  points.forEach(([, count], index) => {
    if (!count) return;
    const size = (count / highest) * (height - bottom - 6);
    picture.append(svg('rect', { class: 'bar', x: left + index * step, y: height - bottom - size, width: Math.max(1, step - 1), height: size, rx: 1 }));
  });
  if (!small) axes(picture, String(highest), points[0]?.[0], points.at(-1)?.[0]);
  return picture;
}

/** Dots of durations: pairs of a time and milliseconds. */
export function dots(points, { label, from, to }) {
  const longest = Math.max(1, ...points.map(([, millis]) => millis));
  const text = points.length ? `${points.length} values, at most ${measured(longest)}` : 'no value';
  const picture = svg('svg', { class: 'plot', viewBox: `0 0 ${WIDTH} ${HEIGHT}`, role: 'img', 'aria-label': `${label}: ${text}` });
  for (const [at, millis] of points) {
    const x = LEFT + 4 + ((at - from) / Math.max(1, to - from)) * (WIDTH - LEFT - 10);
    const y = HEIGHT - BOTTOM - (millis / longest) * (HEIGHT - BOTTOM - 10);
    picture.append(svg('line', { class: 'stem', x1: x, x2: x, y1: HEIGHT - BOTTOM, y2: y }), svg('circle', { class: 'dot', cx: x, cy: y, r: 3 }));
  }
  axes(picture, points.length ? measured(longest) : '', from, to);
  return picture;
}

function axes(picture, highest, from, to) {
  const text = (x, y, anchor, content) => svg('text', { x, y, 'text-anchor': anchor }, content);
  picture.append(
    svg('line', { class: 'axis', x1: LEFT, x2: WIDTH, y1: HEIGHT - BOTTOM, y2: HEIGHT - BOTTOM }),
    svg('line', { class: 'grid', x1: LEFT, x2: WIDTH, y1: 6, y2: 6 }),
    text(LEFT - 6, 10, 'end', highest),
    text(LEFT - 6, HEIGHT - BOTTOM, 'end', '0'),
    text(WIDTH, HEIGHT - 4, 'end', 'now'),
  );
  if (to > from) picture.append(text(LEFT, HEIGHT - 4, 'start', `${duration(to - from)} ago`));
}

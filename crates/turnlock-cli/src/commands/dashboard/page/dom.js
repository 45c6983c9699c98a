// Builds elements. Text of the store becomes text nodes, never markup.

const SVG = 'http://www.w3.org/2000/svg';

function fill(element, attributes, children) {
  for (const [name, value] of Object.entries(attributes ?? {})) {
    if (value === undefined || value === null || value === false) continue;
    if (name.startsWith('on')) element.addEventListener(name.slice(2), value);
    else element.setAttribute(name, value === true ? '' : value);
  }
  element.append(...children.flat().filter((child) => child !== undefined && child !== null && child !== false));
  return element;
}

/** An HTML element with attributes, event handlers (`onclick`) and children. */
export function html(tag, attributes, ...children) {
  return fill(document.createElement(tag), attributes, children);
}

/** The same for SVG. */
export function svg(tag, attributes, ...children) {
  return fill(document.createElementNS(SVG, tag), attributes, children);
}

/** Sets the text of an element, if it differs. */
export function setText(element, text) {
  if (element.textContent !== text) element.textContent = text;
}

/**
 * A part of a page that is built again only if its data is different, so that focus and selection stay. The focus of an element that is
 * gone is then on the heading of the card. What is scrolled in it stays where it is.
 */
export function section(build) {
  let known;
  const element = html('div');
  return {
    element,
    update(data) {
      const key = JSON.stringify(data);
      if (key === known) return;
      known = key;
      const focused = element.contains(document.activeElement) ? document.activeElement : undefined;
      const scrolled = [...element.querySelectorAll('.scroll')].map(({ scrollLeft, scrollTop }) => [scrollLeft, scrollTop]);
      element.replaceChildren(...[build(data)].flat());
      if (focused) {
        const same = [...element.querySelectorAll('[data-focus]')].find((found) => found.dataset.focus === focused.dataset.focus);
        const heading = element.closest('.card')?.querySelector('h2');
        heading?.setAttribute('tabindex', '-1');
        (same ?? heading ?? document.getElementById('main')).focus();
      }
      element.querySelectorAll('.scroll').forEach((box, index) => scrolled[index] && box.scrollTo(...scrolled[index]));
    },
  };
}

/** Reads a text to users of screen readers. */
export function announce(text) {
  document.getElementById('announcer').textContent = text;
}

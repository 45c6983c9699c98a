// The connection to the server: the session, the stream of events, and requests.

/** How long a page can be in the background before it gives up its connection, of which a browser has six. */
const BACKGROUND_LIMIT = 10_000;
const FIRST_PAUSE = 500;
const LONGEST_PAUSE = 5_000;
/** Without a message for so many intervals, the connection is taken as broken. A slow query and its pause take up to 40 s. */
const MISSED_INTERVALS = 10;
const SHORTEST_SILENCE = 60_000;
/** How long the session is awaited, which the server has at hand, and other requests, for which it has a limit of 60 s. */
const SESSION_LIMIT = 15_000;
const REQUEST_LIMIT = 70_000;

export class Connection {
  session = undefined;
  #handlers;
  #source = undefined;
  #pause = FIRST_PAUSE;
  #timer = undefined;
  #background = undefined;
  #silence = undefined;
  /** `false` while the login form is shown. */
  #isWanted = false;
  /** Closed since the page is in the background. */
  #isPaused = false;
  /** Counts the connections: what one that was closed meanwhile began is given up. */
  #generation = 0;

  /** Handlers: `session`, `snapshot`, `change`, `outage`, `state`, `login`. */
  constructor(handlers) {
    this.#handlers = handlers;
    document.addEventListener('visibilitychange', () => this.#visibility());
    this.#visibility();
  }

  async open() {
    const generation = this.#close();
    this.#isWanted = true;
    this.#handlers.state('connecting');
    let session;
    try {
      const response = await request('/api/session', {}, SESSION_LIMIT);
      if (generation !== this.#generation) return;
      if (response.status === 401) {
        this.#isWanted = false;
        return this.#handlers.login();
      }
      if (!response.ok) throw new Error(await response.text());
      session = await response.json();
    } catch {
      return generation === this.#generation && this.#retry();
    }
    if (generation !== this.#generation) return;
    this.session = session;
    this.#handlers.session(session);
    if (!session.has_room) return this.#retry('full');
    const source = new EventSource('/api/events');
    this.#source = source;
    for (const name of ['snapshot', 'change', 'outage']) {
      source.addEventListener(name, (event) => {
        this.#pause = FIRST_PAUSE;
        this.#listen();
        const data = JSON.parse(event.data);
        this.#handlers[name](data);
        this.#handlers.state(name === 'outage' || data.outage ? 'outage' : 'live');
      });
    }
    source.addEventListener('error', () => this.#retry());
    this.#listen();
  }

  /** Exchanges the token for a cookie. Returns whether it was right. Throws if there is no reply. */
  async login(token) {
    // A header can have these characters only.
    if (!/^[\x21-\x7e]+$/.test(token)) return false;
    const response = await request('/api/login', { method: 'POST', headers: { authorization: `Bearer ${token}` } }, SESSION_LIMIT);
    if (!response.ok && response.status !== 401) throw new Error(await response.text());
    if (response.ok) this.open();
    return response.ok;
  }

  /** Sends a request that may change something. */
  async post(path, body) {
    const headers = { 'content-type': 'application/json', 'x-turnlock-dashboard': this.session.csrf };
    return request(path, { method: 'POST', headers, body: JSON.stringify(body ?? {}) });
  }

  async get(path) {
    const response = await request(path);
    return response.ok ? response.json() : undefined;
  }

  #listen() {
    clearTimeout(this.#silence);
    const limit = Math.max(SHORTEST_SILENCE, MISSED_INTERVALS * this.session.interval_ms);
    this.#silence = setTimeout(() => this.#retry(), limit);
  }

  #retry(state = 'lost') {
    this.#close();
    this.#handlers.state(state);
    this.#timer = setTimeout(() => this.open(), this.#pause);
    this.#pause = Math.min(LONGEST_PAUSE, this.#pause * 2);
  }

  #close() {
    this.#generation += 1;
    clearTimeout(this.#timer);
    clearTimeout(this.#silence);
    this.#source?.close();
    this.#source = undefined;
    return this.#generation;
  }

  #visibility() {
    clearTimeout(this.#background);
    if (document.hidden) {
      this.#background = setTimeout(() => {
        if (!this.#isWanted) return;
        this.#close();
        this.#isPaused = true;
        this.#handlers.state('paused');
      }, BACKGROUND_LIMIT);
    } else if (this.#isPaused) {
      this.#isPaused = false;
      this.open();
    }
  }
}

/** A request that fails if it takes too long, also while its body is read. */
function request(path, options, limit = REQUEST_LIMIT) {
  return fetch(path, { ...options, signal: AbortSignal.timeout(limit) });
}

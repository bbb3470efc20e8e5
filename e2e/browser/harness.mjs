// Shared by the tests of the console: a real `hob serve` on a temporary home, and a real browser that records errors.
import { spawn, execFileSync } from 'node:child_process';
import { existsSync, mkdirSync, mkdtempSync, readFileSync, readdirSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import path from 'node:path';
import { fileURLToPath } from 'node:url';

import { chromium } from 'playwright-core';

const here = path.dirname(fileURLToPath(import.meta.url));
export const root = path.join(here, '../..');
const programs = process.env.HOB_TEST_PROGRAMS ?? path.join(root, 'target/debug');
const hob = path.join(programs, 'hob');
const agent = path.join(programs, 'hob-scripted-agent');
const browserProgram = process.env.HOB_TEST_CHROMIUM ?? '/usr/bin/chromium';

/** Polls until a condition holds; the error names it. */
export async function until(what, look, patience = 20_000) {
  const end = Date.now() + patience;
  let last;
  for (;;) {
    try {
      const found = await look();
      if (found !== undefined && found !== null && found !== false) return found;
      last = undefined;
    } catch (error) {
      last = error;
    }
    if (Date.now() > end) throw new Error(`waited in vain until ${what}${last ? `: ${last.message}` : ''}`);
    await new Promise((resolve) => setTimeout(resolve, 30));
  }
}

const quoted = (text) => JSON.stringify(text);

/** Returns the part of `config.toml` that defines a scripted agent. */
export function scripted(name, driver, args = [], env = {}) {
  const lines = [`[agents.${name}]`, `driver = "${driver}"`, `command = [${[agent, ...args].map(quoted).join(', ')}]`];
  lines.push('writable = ["~/.hob-scripted", "~/.claude"]');
  lines.push(`env = { ${Object.entries(env).map(([key, value]) => `${key} = ${quoted(value)}`).join(', ')} }`);
  return `${lines.join('\n')}\n`;
}

/** Puts a program of this name on the path that runs a command. */
function program(hob, name, command) {
  const file = path.join(hob.programs, name);
  writeFileSync(file, `#!/bin/sh\nexec ${command.map((part) => `'${part}'`).join(' ')} "$@"\n`, { mode: 0o755 });
}

/** An agent for screenshots: its program has the name of a real one and plays a script. */
export function actor(hob, name, driver, command, env = {}) {
  program(hob, name, command);
  const set = Object.entries(env).map(([key, value]) => `${key} = ${quoted(value)}`);
  return `[agents.${name}]\ndriver = "${driver}"\ncommand = ["${name}"]\nsandbox = "off"\nenv = { ${set.join(', ')} }\n`;
}

/** The agent that tells a story. */
export const storyteller = (hob, name, story) => actor(hob, name, 'acp', [process.execPath, path.join(here, 'storyteller.mjs'), story]);

/** The scripted agent on a terminal. */
export const player = (hob, name, script) => actor(hob, name, 'claude-tui', [agent], { HOB_SCRIPT: script });

export const AGENTS = scripted('acp', 'acp', ['acp']) + scripted('claude', 'claude-tui');

/** A server on a temporary home. */
export class Hob {
  token = 'admin-token-of-the-browser-tests-0123456789';

  constructor(config = AGENTS, settings = '') {
    this.folder = mkdtempSync(path.join(tmpdir(), 'hob-browser-'));
    this.home = path.join(this.folder, 'hob');
    this.user = path.join(this.folder, 'user');
    mkdirSync(this.home, { mode: 0o700 });
    mkdirSync(this.user);
    this.programs = path.join(this.user, 'bin');
    mkdirSync(this.programs);
    writeFileSync(path.join(this.home, 'config.toml'), `${settings}\n${config}`, { mode: 0o600 });
    this.port = 0;
  }

  environment() {
    return { PATH: `${this.programs}:${process.env.PATH}`, HOME: this.user, HOB_HOME: this.home, HOB_ADMIN_TOKEN: this.token, ...this.extra };
  }

  async start() {
    this.child = spawn(hob, ['serve', '--listen', `127.0.0.1:${this.port}`], {
      env: this.environment(),
      stdio: ['ignore', 'pipe', 'pipe'],
    });
    const child = this.child;
    let said = '';
    child.stderr.on('data', (bytes) => {
      said = (said + bytes).slice(-4000);
    });
    let out = '';
    child.stdout.on('data', (bytes) => {
      out += bytes;
    });
    this.ended = new Promise((resolve) => child.once('exit', resolve));
    await until('hob serve answers', () => {
      if (child.exitCode !== null) throw Object.assign(new Error(`it ended with ${child.exitCode}: ${said}`));
      const match = /hob listening on http:\/\/[^:]+:(\d+)/.exec(out);
      if (match) this.port = Number(match[1]);
      return match;
    });
    this.url = `http://127.0.0.1:${this.port}`;
    if (process.env.HOB_TEST_FRONT) await this.standInFront();
    return this;
  }

  /** With HOB_TEST_FRONT the last `vite build` is tested, without building Hob again. */
  async standInFront() {
    if (!this.front) {
      const program = path.join(root, 'console/dev/serve.mjs');
      this.front = spawn(process.execPath, [program, this.url, '0'], { stdio: ['ignore', 'pipe', 'inherit'] });
      this.frontUrl = await new Promise((resolve) => this.front.stdout.once('data', (line) => resolve(String(line).trim())));
    }
    this.url = this.frontUrl;
  }

  /** Stops the server, or kills it. */
  async end(signal = 'SIGTERM') {
    if (!this.child || this.child.exitCode !== null || this.child.signalCode !== null) return;
    this.child.kill(signal);
    await this.ended;
  }

  /** Stops the server and checks that no process and no file is left. */
  async stop() {
    this.front?.kill();
    await this.end();
    try {
      await until('no process of this home is left', () => processesOf(this.user).length === 0, 8000);
    } finally {
      rmSync(this.folder, { recursive: true, force: true });
    }
  }

  run(...args) {
    return execFileSync(hob, args, { env: this.environment(), encoding: 'utf8' });
  }

  async call(method, where, body, token = this.token) {
    const headers = { authorization: `Bearer ${token}` };
    if (body !== undefined) headers['content-type'] = 'application/json';
    const response = await fetch(this.url + where, { method, headers, ...(body === undefined ? {} : { body: JSON.stringify(body) }) });
    const text = await response.text();
    if (!response.ok) throw new Error(`${method} ${where}: ${response.status} ${text}`);
    return text ? JSON.parse(text) : null;
  }

  /** A session of the owner's. */
  async session(agent = 'acp', more = {}) {
    return (await this.call('POST', '/admin/sessions', { agent, ...more })).session_id;
  }

  ask(id, prompt) {
    return this.call('POST', `/admin/sessions/${id}/turn`, { prompt });
  }

  async app(name) {
    return (await this.call('POST', '/admin/apps', { app: name })).token;
  }

  /** Waits until the turns of a session are over, and returns the session. */
  idle(id, patience) {
    return until('the session is idle', async () => {
      const session = await this.call('GET', `/admin/sessions/${id}`);
      return session.state === 'idle' && session;
    }, patience);
  }

  /** Captures turns from a transcript of Claude Code. */
  remember(turns, session = '6f1d9a52-0c1e-4d7e-9a55-3f8b1c2d4e5f', cwd = '/home/ada/src/shop') {
    const file = path.join(this.folder, `${session}.jsonl`);
    let parent = null;
    const lines = turns.map(([role, text, timestamp], at) => {
      const uuid = `${session.slice(0, 24)}${String(at + 1).padStart(12, '0')}`;
      const record = {
        type: role,
        uuid,
        parentUuid: parent,
        sessionId: session,
        cwd,
        timestamp: timestamp ?? new Date(Date.now() - (turns.length - at) * 60_000).toISOString(),
        message: { role, content: role === 'user' ? text : [{ type: 'text', text }] },
      };
      parent = uuid;
      return JSON.stringify(record);
    });
    writeFileSync(file, `${lines.join('\n')}\n`);
    return JSON.parse(this.run('capture-transcript', '--session-id', session, '--cwd', cwd, file));
  }
}

/** Returns the processes with this home in their environment. */
function processesOf(home) {
  const found = [];
  for (const entry of readdirSync('/proc')) {
    if (!/^\d+$/.test(entry)) continue;
    try {
      const environment = readFileSync(`/proc/${entry}/environ`, 'latin1');
      if (environment.includes(`HOME=${home}\0`)) found.push(Number(entry));
    } catch {
      // The process is gone, or belongs to another user.
    }
  }
  return found;
}

/** A phone in a person's hand. */
export const PHONE = { viewport: { width: 390, height: 844 }, isMobile: true, hasTouch: true };
const DESK = { viewport: { width: 1400, height: 900 } };

/** The ways in which people look at the console: what is read and answered is tested in each. */
export const VIEWS = [
  ['on a desk, dark', { ...DESK, colorScheme: 'dark' }],
  ['on a desk, light', { ...DESK, colorScheme: 'light' }],
  ['on a phone, dark', { ...PHONE, colorScheme: 'dark' }],
  ['on a phone, light', { ...PHONE, colorScheme: 'light' }],
];

/** Each width and each theme once, for what depends on one of them only. */
export const TWO_VIEWS = [VIEWS[0], VIEWS[3]];

/** Asserts that a page has the theme of its view, and that nothing on it is wider than the window. */
export async function assertView(page, { colorScheme }) {
  const seen = await page.evaluate(() => ({
    theme: document.documentElement.dataset.theme,
    over: Math.max(document.documentElement.scrollWidth, document.querySelector('main').scrollWidth) - window.innerWidth,
  }));
  if (seen.theme !== colorScheme || seen.over > 0) throw new Error(`${seen.theme} instead of ${colorScheme}, and ${seen.over} pixels too wide`);
}

/** One browser for all tests of a file. */
export async function launch(more = []) {
  if (!existsSync(browserProgram)) throw new Error(`${browserProgram} is missing: run scripts/setup-e2e browser`);
  return chromium.launch({
    executablePath: browserProgram,
    headless: true,
    args: [
      '--no-sandbox',
      '--disable-gpu',
      '--disable-quic',
      '--no-first-run',
      '--disable-background-networking',
      '--disable-component-update',
      '--disable-sync',
      '--enable-precise-memory-info',
      '--disable-lcd-text',
      ...more,
    ],
  });
}

/** A page that records what must not happen. */
export async function open(browser, hob, options = {}) {
  const { where = '/', ...context } = options;
  const profile = await browser.newContext({ viewport: { width: 1280, height: 860 }, ...context });
  const page = await profile.newPage();
  const trouble = { violations: [], errors: [], outside: [], dialogs: [] };
  await page.addInitScript(() => {
    window.__violations = [];
    document.addEventListener('securitypolicyviolation', (event) => {
      window.__violations.push(`${event.violatedDirective} ${event.blockedURI} ${event.sourceFile}:${event.lineNumber}`);
    });
  });
  page.on('console', (message) => {
    const text = message.text();
    // The browser itself logs answers that are not 2xx or never came.
    if (text.startsWith('Failed to load resource') || /WebSocket connection to .* failed/.test(text)) return;
    if (message.type() === 'error' || message.type() === 'warning') trouble.errors.push(text);
    if (text.includes('Content Security Policy')) trouble.violations.push(text);
  });
  page.on('pageerror', (error) => trouble.errors.push(String(error.stack ?? error)));
  page.on('dialog', (dialog) => {
    trouble.dialogs.push(dialog.message());
    void dialog.dismiss();
  });
  const outside = (url) => {
    if (!url.startsWith(hob.url) && !url.startsWith(hob.url.replace('http', 'ws')) && !url.startsWith('data:')) trouble.outside.push(url);
  };
  page.on('request', (request) => outside(request.url()));
  page.on('websocket', (socket) => outside(socket.url()));
  page.on('popup', (popup) => trouble.outside.push(`a window: ${popup.url()}`));
  await page.goto(hob.url + where);
  page.trouble = trouble;
  return page;
}

/** Closes a page and asserts that nothing forbidden has happened. */
export async function close(page) {
  const { trouble } = page;
  trouble.violations.push(...(await page.evaluate(() => window.__violations)));
  await page.context().close();
  const all = Object.entries(trouble).flatMap(([kind, list]) => list.map((one) => `${kind}: ${one}`));
  if (all.length) throw new Error(`the page was not clean:\n${all.join('\n')}`);
}

export async function signIn(page, hob) {
  await page.getByLabel('Admin token').fill(hob.token);
  await page.getByRole('button', { name: 'Sign in' }).click();
  await page.getByRole('navigation', { name: 'Pages' }).first().waitFor();
}

/** Opens a signed-in page at a path. */
export async function visit(browser, hob, place = '/now', options = {}) {
  const page = await open(browser, hob, { ...options, where: `/#${place}` });
  await signIn(page, hob);
  return page;
}

/** Runs a body in several views on one server that `prepare` fills. An error names its view. */
export async function inViews(views, hob, prepare, body) {
  try {
    await hob.start();
    const made = await prepare(hob);
    for (const [view, options] of views) {
      try {
        await body(hob, options, made);
      } catch (error) {
        error.message = `${view}: ${error.message}`;
        throw error;
      }
    }
  } finally {
    await hob.stop();
  }
}

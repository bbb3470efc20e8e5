// Live terminals in the console.
import assert from 'node:assert/strict';
import { writeFileSync } from 'node:fs';
import path from 'node:path';
import { after, before, test } from 'node:test';

import { AGENTS, assertView, close, Hob, inViews, launch, scripted, signIn, until, VIEWS, visit } from './harness.mjs';

let browser;
before(async () => {
  browser = await launch();
});
after(() => browser.close());

async function withHob(hob, body) {
  try {
    await hob.start();
    await body(hob);
  } finally {
    await hob.stop();
  }
}

/** Returns the text on the page's terminal. */
const screen = async (page) => (await page.locator('.xterm-rows > div').allTextContents()).join('\n').replaceAll('\u00a0', ' ');
const shows = (page, text) => until(`the terminal shows ${text}`, async () => (await screen(page)).includes(text));

async function atTerminal(hob, id) {
  const page = await visit(browser, hob, `/sessions/${id}/terminal`);
  await page.locator('.xterm-rows').waitFor();
  return page;
}

/** Records what a page sends over its WebSocket. */
function sent(page) {
  const frames = [];
  page.on('websocket', (socket) => socket.on('framesent', ({ payload }) => frames.push(payload)));
  return frames;
}

test('typing into a terminal reaches the agent', { timeout: 90_000 }, () =>
  withHob(new Hob(), async (hob) => {
    const id = await hob.session('claude');
    await hob.ask(id, 'a first question');
    await hob.idle(id);
    const page = await atTerminal(hob, id);
    await shows(page, 'echo: a first question');
    await page.locator('.xterm').click();
    await page.keyboard.type('typed in the browser');
    await shows(page, 'typed in the browser');
    await page.getByText('you type', { exact: true }).waitFor();
    await page.keyboard.press('Enter');
    await shows(page, 'echo: typed in the browser');
    await close(page);
  }),
);

test('two viewers see the same screen, and one writes', { timeout: 90_000 }, () =>
  withHob(new Hob(), async (hob) => {
    const id = await hob.session('claude');
    await hob.ask(id, 'hello both');
    await hob.idle(id);
    const first = await atTerminal(hob, id);
    const second = await atTerminal(hob, id);
    for (const page of [first, second]) await shows(page, 'echo: hello both');
    await first.locator('.xterm').click();
    await first.keyboard.type('from the first');
    for (const page of [first, second]) await shows(page, 'from the first');
    await second.getByText('somebody else types').waitFor();
    await until('both show the same', async () => (await screen(first)) === (await screen(second)));
    // The other one takes over.
    await second.getByRole('button', { name: 'Take the keyboard' }).click();
    await first.getByText('somebody else types').waitFor();
    await second.keyboard.type(' and the second');
    for (const page of [first, second]) await shows(page, 'from the first and the second');
    // A new size is a new size for both.
    await second.getByRole('button', { name: 'Fit' }).click();
    const size = (page) => page.locator('.terminal-bar .soft').textContent();
    await until('both have the new size', async () => (await size(first)) === (await size(second)) && (await size(first)) !== '120 × 40');
    await close(first);
    await close(second);
  }),
);

test('a terminal comes back after a restart', { timeout: 90_000 }, () =>
  withHob(new Hob(), async (hob) => {
    const id = await hob.session('claude');
    await hob.ask(id, 'before');
    await hob.idle(id);
    const page = await atTerminal(hob, id);
    await shows(page, 'echo: before');
    await hob.end('SIGKILL');
    await page.getByText('Hob is away. Reconnecting…').waitFor({ timeout: 15_000 });
    await hob.start();
    await page.getByText('Hob is away. Reconnecting…').waitFor({ state: 'detached', timeout: 15_000 });
    await hob.ask(id, 'after');
    await hob.idle(id);
    const { turns } = await hob.call('GET', `/admin/sessions/${id}/turns`);
    assert.deepEqual(turns.map((turn) => turn.state), ['finished', 'finished'], JSON.stringify(turns));
    await page.evaluate((where) => { location.hash = where; }, `/sessions/${id}`);
    await page.getByRole('log').getByText('echo: after').waitFor();
    await page.getByRole('tab', { name: 'Terminal' }).click();
    await shows(page, 'echo: after');
    await close(page);
  }),
);

test('a log that could not be loaded comes back with the server', { timeout: 90_000 }, () =>
  withHob(new Hob(), async (hob) => {
    const id = await hob.session('claude');
    await hob.ask(id, 'before');
    await hob.idle(id);
    const page = await visit(browser, hob, '/sessions');
    let refused = 0;
    await page.route('**/events?before=*', (route) => (refused++ ? route.continue() : route.abort('connectionrefused')));
    await page.evaluate((where) => { location.hash = where; }, `/sessions/${id}`);
    await page.getByRole('log').getByText('echo: before').waitFor();
    assert.ok(refused > 1, `${refused}`);
    // It also follows what happens next.
    await hob.ask(id, 'after');
    await page.getByRole('log').getByText('echo: after').waitFor();
    await close(page);
  }),
);

/** Sequences by which an agent may try to reach beyond its screen. */
const e = '\x1b';
const NASTY = [
  `${e}]0;owned title\x07${e}]2;owned title\x07`,
  `${e}]52;c;b3duZWQ=\x07`,
  `${e}[c${e}[>c${e}[=c${e}[5n${e}[6n${e}[?6n`,
  `${e}[?2026$p${e}[4$p${e}[>q${e}[x`,
  `${e}[14t${e}[16t${e}[18t${e}[21t${e}[8;5;5t`,
  `${e}]10;?\x07${e}]11;?\x07${e}]4;1;?\x07`,
  `${e}P$qm${e}\\${e}P+q544e${e}\\${e}Z`,
  `${e}]8;;javascript:alert(1)\x07click me${e}]8;;\x07`,
  `${e}[?1000h${e}[?1002h${e}[?1003h${e}[?1004h${e}[?1006h`,
  `${e}]1337;File=inline=1:PHNjcmlwdD4=\x07${e}]777;notify;owned;owned\x07${e}]9;owned\x07`,
];

test('escape sequences of an agent do not act on the page', { timeout: 90_000 }, async () => {
  const hob = new Hob();
  const script = path.join(hob.user, 'script');
  writeFileSync(script, `${NASTY.map((one) => `[[say a ${one} b]]`).join(' ')} [[say it is over]]\n`);
  writeFileSync(path.join(hob.home, 'config.toml'), scripted('claude', 'claude-tui', [], { HOB_SCRIPT: script }), { mode: 0o600 });
  await withHob(hob, async () => {
    const id = await hob.session('claude');
    const page = await visit(browser, hob, '/now');
    await page.context().grantPermissions(['clipboard-read', 'clipboard-write']);
    await page.bringToFront();
    await page.evaluate(() => navigator.clipboard.writeText('mine'));
    const frames = sent(page);
    await page.evaluate((where) => { location.hash = where; }, `/sessions/${id}/terminal`);
    await page.locator('.xterm-rows').waitFor();
    // The page names the session once it has loaded it.
    await page.waitForFunction(() => document.title.startsWith('claude'));
    const title = await page.title();
    await hob.ask(id, 'be nasty');
    await shows(page, 'it is over');
    // Mouse moves and focus changes send nothing to the agent either.
    const box = await page.locator('.xterm').boundingBox();
    await page.mouse.move(box.x + 50, box.y + 50);
    await page.mouse.move(box.x + 90, box.y + 90);
    await page.mouse.click(box.x + 60, box.y + 40);
    await page.getByRole('button', { name: 'Fit' }).focus();
    await page.locator('.xterm textarea').focus();
    await hob.idle(id);
    assert.deepEqual(frames, [], 'the page has typed nothing');
    assert.equal(await page.title(), title);
    assert.equal(await page.evaluate(() => navigator.clipboard.readText()), 'mine');
    assert.ok(!(await screen(page)).includes('owned'));
    // And a person still can.
    await page.keyboard.type('x');
    await until('one letter was typed', () => frames.length === 1);
    await close(page);
  });
});

test('escape sequences do not act on the page without the filter of the server', { timeout: 90_000 }, () =>
  withHob(new Hob(), async (hob) => {
    // The server's filter passes only what draws. Here it is bypassed: the page gets every byte.
    const id = await hob.session('claude');
    const page = await visit(browser, hob, '/now');
    await page.context().grantPermissions(['clipboard-read', 'clipboard-write']);
    await page.evaluate(() => navigator.clipboard.writeText('mine'));
    const frames = [];
    let feed;
    await page.routeWebSocket(/\/attach/, (socket) => {
      feed = (bytes) => socket.send(Buffer.from(bytes));
      socket.onMessage((message) => frames.push(message));
      socket.send(JSON.stringify({ type: 'hello', id, cols: 80, rows: 24, terminal: true, writer: 'you' }));
    });
    await page.reload();
    await page.evaluate((where) => { location.hash = where; }, `/sessions/${id}/terminal`);
    await page.locator('.xterm-rows').waitFor();
    await until('it is joined', () => feed);
    // The page names the session once it has loaded it.
    await page.waitForFunction(() => document.title.startsWith('claude'));
    const title = await page.title();
    for (const one of NASTY) feed(`a ${one} b\r\n`);
    feed('it is over\r\n');
    await shows(page, 'it is over');
    await shows(page, 'click me');
    const box = await page.locator('.xterm').boundingBox();
    await page.mouse.move(box.x + 50, box.y + 50);
    for (const row of [7, 8, 9]) await page.mouse.click(box.x + 40, box.y + row * 16);
    await page.locator('.finder').focus();
    await page.locator('.xterm textarea').focus();
    assert.deepEqual(frames, [], 'the page has typed nothing');
    assert.equal(await page.title(), title);
    assert.equal(await page.evaluate(() => navigator.clipboard.readText()), 'mine');
    await page.keyboard.type('x');
    await until('one letter was typed', () => frames.length === 1);
    assert.equal(String(frames[0]), 'x');
    await close(page);
  }),
);

test('live terminals are shown on the first page', { timeout: 90_000 }, () =>
  withHob(new Hob(AGENTS), async (hob) => {
    const page = await visit(browser, hob, '/now');
    await page.getByText('Nothing runs').waitFor();
    const claude = await hob.session('claude');
    const acp = await hob.session('acp');
    await page.getByRole('link', { name: /claude of .*idle/ }).waitFor();
    await hob.ask(acp, '[[say words of the tail]] [[until go]]');
    await page.getByRole('link', { name: /acp of .*running/ }).waitFor();
    await page.locator('.tail').getByText('words of the tail').waitFor();
    await hob.ask(claude, '[[say a screen]]');
    const drawn = () => page.locator('canvas').evaluate((canvas) => {
      const { data } = canvas.getContext('2d').getImageData(0, 0, canvas.width, canvas.height);
      let bright = 0;
      for (let at = 0; at < data.length; at += 4) if (Math.abs(data[at] - data[0]) > 60) bright += 1;
      return bright;
    });
    await until('the small terminal shows something', async () => (await drawn()) > 200);
    await page.getByRole('link', { name: /claude of/ }).click();
    await shows(page, 'a screen');
    await hob.call('POST', `/admin/sessions/${acp}/cancel`);
    await close(page);
  }),
);

test('a process without a terminal says so', { timeout: 90_000 }, () =>
  withHob(new Hob(AGENTS, '[apps.search]\ndriver = "claude-stream"\n'), async (hob) => {
    const token = await hob.app('search');
    const page = await visit(browser, hob, '/now');
    const looked = [];
    page.on('request', (request) => looked.push(request.url()));
    page.on('websocket', (socket) => looked.push(socket.url()));
    await hob.call('POST', '/v1/messages', { model: 'claude', max_tokens: 9, messages: [{ role: 'user', content: '[[say from a pipe]]' }] }, token);
    const link = page.getByRole('link', { name: /claude of search.*idle/ });
    await page.locator('.tile').filter({ has: link }).getByText('No terminal').waitFor();
    await link.getByText('1 turn').waitFor();
    await link.click();
    await page.getByRole('heading', { name: 'No terminal' }).waitFor();
    await page.locator('.session-head').getByText('search', { exact: true }).waitFor();
    assert.deepEqual(looked.filter((url) => /\/(screen|attach)/.test(url)), [], 'nobody asks for a screen');
    await close(page);
  }),
);

test('the text of an agent on a terminal is seen while it is written', { timeout: 90_000 }, () => {
  const hob = new Hob();
  const script = path.join(hob.user, 'script');
  // A message is on the screen before it is complete, and in the log only then.
  writeFileSync(script, '[[say The first words appear.]] [[until go]] [[say The last words follow.]]\n');
  writeFileSync(path.join(hob.home, 'config.toml'), scripted('claude', 'claude-tui', [], { HOB_SCRIPT: script }), { mode: 0o600 });
  const begin = async () => {
    const id = await hob.session('claude');
    await hob.ask(id, 'write');
    return id;
  };
  return inViews(VIEWS, hob, () => Promise.all(VIEWS.map(begin)), async (hob, options, ids) => {
    const id = ids.pop();
    const page = await visit(browser, hob, `/sessions/${id}`, options);
    const writing = page.getByRole('log').getByRole('group', { name: 'The screen of claude' });
    await writing.getByText('The first words appear.').waitFor();
    await page.getByRole('link', { name: 'Watch its terminal' }).waitFor();
    assert.equal(await page.locator('.said').count(), 0);
    // The end is in view.
    await until('it is in view', () => writing.evaluate((element) => {
      const [inner, outer] = [element.parentElement, element.closest('.virtual')].map((one) => one.getBoundingClientRect());
      return inner.bottom <= outer.bottom && inner.top >= outer.top;
    }));
    await assertView(page, options);
    const session = await hob.call('GET', `/admin/sessions/${id}`);
    writeFileSync(path.join(session.cwd, 'go'), '');
    await page.locator('.said').getByText('The last words follow.').waitFor();
    await writing.waitFor({ state: 'detached' });
    await close(page);
  });
});

test('a terminal reconnects after the next sign-in', { timeout: 90_000 }, () =>
  withHob(new Hob(AGENTS, '[console]\nsession_secs = 8\n'), async (hob) => {
    const id = await hob.session('claude');
    await hob.ask(id, 'hello');
    await hob.idle(id);
    const page = await atTerminal(hob, id);
    await shows(page, 'echo: hello');
    await page.getByText('Sign-in expired').waitFor({ timeout: 20_000 });
    await hob.ask(id, 'while nobody looked');
    await hob.idle(id);
    await signIn(page, hob);
    await page.getByText('click and type').waitFor();
    await shows(page, 'echo: while nobody looked');
    await close(page);
  }),
);

// The console in a real browser, against a real `hob serve` with scripted agents.
import assert from 'node:assert/strict';
import { writeFileSync } from 'node:fs';
import path from 'node:path';
import { after, before, test } from 'node:test';

import { close, Hob, launch, open, signIn, until, visit } from './harness.mjs';

let browser;
before(async () => {
  browser = await launch();
});
after(() => browser.close());

/** A test with a server of its own, which leaves no process and no file. */
function it(name, body, options) {
  test(name, { timeout: 90_000 }, async () => {
    const hob = new Hob(...(options ?? []));
    try {
      await hob.start();
      await body(hob);
    } finally {
      await hob.stop();
    }
  });
}

const field = (page) => page.getByLabel('Ask the agent');
const log = (page) => page.getByRole('log');

async function ask(page, prompt) {
  await field(page).fill(prompt);
  await field(page).press('Enter');
}

it('signing in leaves the token nowhere, and signing out ends it', async (hob) => {
  const page = await open(browser, hob);
  const urls = [];
  page.on('request', (request) => urls.push(request.url()));
  await signIn(page, hob);
  await page.getByRole('heading', { name: 'Now' }).waitFor();
  const kept = await page.evaluate(() => JSON.stringify([{ ...localStorage }, { ...sessionStorage }, location.href, document.cookie, document.documentElement.outerHTML]));
  assert.ok(!kept.includes(hob.token), 'the token is nowhere in the page');
  assert.ok(!kept.includes('hob_console'), 'nor is the cookie');
  assert.ok(urls.every((url) => !url.includes(hob.token)));
  const globals = await page.evaluate((token) => Object.keys(window).filter((name) => { try { return String(window[name]).includes(token); } catch { return false; } }), hob.token);
  assert.deepEqual(globals, []);
  const [cookie] = await page.context().cookies();
  assert.equal(cookie.name, 'hob_console');
  assert.ok(cookie.httpOnly && cookie.sameSite === 'Strict' && !cookie.value.includes(hob.token));
  // The next page needs no token.
  await page.reload();
  await page.getByRole('heading', { name: 'Now' }).waitFor();
  await page.getByRole('button', { name: 'Sign out' }).first().click();
  await page.getByLabel('Admin token').waitFor();
  assert.deepEqual(await page.context().cookies(), []);
  await close(page);
});

it('a wrong token shows an error and no page', async (hob) => {
  const page = await open(browser, hob);
  await page.getByLabel('Admin token').fill('not the token');
  await page.getByRole('button', { name: 'Sign in' }).click();
  await page.getByRole('alert').getByText('That is not the admin token.').waitFor();
  assert.equal(await page.getByRole('navigation').count(), 0);
  // And the right one still works.
  await signIn(page, hob);
  await close(page);
});

it('wrong tokens are rate limited', async (hob) => {
  const page = await open(browser, hob);
  for (let at = 0; at < 14; at += 1) {
    await page.getByLabel('Admin token').fill(`wrong ${at}`);
    await page.getByRole('button', { name: 'Sign in' }).click();
    await page.getByRole('button', { name: 'Sign in', exact: true }).and(page.locator(':enabled')).waitFor();
  }
  await page.getByRole('alert').getByText('Too many wrong tokens').waitFor();
  await close(page);
});

it('an expired cookie asks for the token and keeps the page', async (hob) => {
  const id = await hob.session();
  await hob.ask(id, '[[say words to come back to]]');
  const page = await visit(browser, hob, `/sessions/${id}`);
  await page.getByText('words to come back to', { exact: true }).waitFor();
  await field(page).fill('half a thought');
  await page.context().clearCookies();
  // The next request finds out.
  await page.getByText('Sign-in expired').waitFor({ timeout: 15_000 });
  await signIn(page, hob);
  await page.getByText('Sign-in expired').waitFor({ state: 'detached' });
  assert.ok(page.url().endsWith(`#/sessions/${id}`));
  assert.equal(await field(page).inputValue(), 'half a thought');
  await field(page).press('Enter');
  await log(page).getByText('echo: half a thought').waitFor();
  await close(page);
});

it('a turn is shown as it streams', async (hob) => {
  const id = await hob.session();
  const page = await visit(browser, hob, `/sessions/${id}`);
  await ask(page, '[[think hmm]] [[say first words]] [[until go]] [[tool Bash {"command":"echo from the tool"}]] [[say last words]]');
  await log(page).getByText('first words', { exact: true }).waitFor();
  await page.locator('.session-head').getByText('running').waitFor();
  assert.equal(await log(page).getByText('last words', { exact: true }).count(), 0);
  assert.equal(await page.locator('.thought').getByText('hmm').count(), 1);
  const session = await hob.call('GET', `/admin/sessions/${id}`);
  writeFileSync(path.join(session.cwd, 'go'), '');
  await log(page).getByText('last words', { exact: true }).waitFor();
  await page.locator('.turn-end').getByText('finished').waitFor();
  await page.locator('.session-head').getByText('idle').waitFor();
  // The tool is folded until the user opens it.
  assert.equal(await page.getByText('from the tool', { exact: true }).count(), 0);
  await page.getByRole('button', { name: /Bash/ }).click();
  await page.getByText('from the tool', { exact: true }).waitFor();
  await close(page);
});

it('older events load while scrolling up', async (hob) => {
  const id = await hob.session();
  for (let turn = 0; turn < 6; turn += 1) {
    const steps = Array.from({ length: 100 }, (_, at) => `[[tool Read {"n":${turn * 100 + at}}]][[say word-${turn * 100 + at}. ]]`);
    await hob.ask(id, steps.join(''));
    await hob.idle(id, 60_000);
  }
  const page = await visit(browser, hob, `/sessions/${id}`);
  await log(page).getByText('word-599.').waitFor();
  assert.equal(await log(page).getByText('word-0.', { exact: true }).count(), 0);
  await log(page).hover();
  const seen = new Set();
  const gather = async () => {
    const words = (await log(page).innerText()).match(/word-\d+\.(?!\d)/g) ?? [];
    for (const word of words) seen.add(word);
    const shown = words.filter((word) => word !== words.find((one) => one === word));
    assert.deepEqual(shown, []);
  };
  await until('the beginning is reached', async () => {
    await gather();
    // Half of what is shown, and only once it is drawn: two turns of the wheel at a time would pass over some.
    await log(page).evaluate((list) => new Promise((drawn) => {
      list.scrollTop -= list.clientHeight / 2;
      requestAnimationFrame(() => requestAnimationFrame(drawn));
    }));
    // A list that has just grown at its beginning draws that for a moment, before it scrolls back to where one reads.
    const isAtTop = (await log(page).evaluate((list) => list.scrollTop)) === 0;
    return isAtTop && (await log(page).getByText('Session made with acp').count()) > 0;
  }, 60_000);
  await gather();
  // Nothing was left out on the way, apart from what the clipped prompts repeat.
  assert.ok(seen.size >= 590, `${seen.size} of 600 were seen: without ${Array.from({ length: 600 }, (_, n) => n).filter((n) => !seen.has(`word-${n}.`)).join(' ')}`);
  // While one reads here, the end goes on without moving the page.
  const top = await log(page).evaluate((list) => list.scrollTop);
  await hob.ask(id, '[[say a newer end]]');
  await hob.idle(id);
  await page.waitForTimeout(300);
  assert.ok(Math.abs((await log(page).evaluate((list) => list.scrollTop)) - top) < 3, 'the page stays where it is');
  await page.getByRole('button', { name: /to the latest/i }).click();
  await log(page).getByText('a newer end', { exact: true }).waitFor();
  await close(page);
});

it('agent output is shown as text, never as HTML', async (hob) => {
  const id = await hob.session();
  const page = await visit(browser, hob, `/sessions/${id}`);
  await ask(page, '[[say <img src=x onerror=alert(1)><script>alert(2)</script> [link](javascript:alert(3)) \u001b]0;owned\u0007 `code`]]');
  await page.locator('.said').getByText('<script>alert(2)</script>').waitFor();
  assert.equal(await page.locator('.said img, .said script, .said a').count(), 0);
  await close(page);
});

it('a permission request is answered with a button', async (hob) => {
  const id = await hob.session('acp', { permissions: 'ask' });
  const page = await visit(browser, hob, `/sessions/${id}`);
  await ask(page, '[[permission delete the logs]] [[say went on]]');
  // A session that waits for a person does not look like one at work.
  await page.locator('.session-head').getByText('waiting').waitFor();
  const group = page.getByRole('group', { name: /delete the logs/ });
  await group.waitFor();
  await group.getByRole('button', { name: 'Allow', exact: true }).click();
  await log(page).getByText('permission delete the logs: yes').waitFor();
  await group.waitFor({ state: 'detached' });
  await page.locator('.ask-over').getByText('Allow').waitFor();
  await ask(page, '[[permission delete it all]] [[say went on]]');
  await page.getByRole('group', { name: /delete it all/ }).getByRole('button', { name: 'Reject' }).click();
  await log(page).getByText('permission delete it all: no').waitFor();
  await close(page);
});

it('a turn is cancelled and the session closed', async (hob) => {
  const id = await hob.session();
  const page = await visit(browser, hob, `/sessions/${id}`);
  await ask(page, '[[say begun]] [[hang]]');
  await log(page).getByText('begun', { exact: true }).waitFor();
  await page.getByRole('button', { name: 'Cancel turn' }).click();
  await page.locator('.turn-end').getByText('cancelled').waitFor();
  await page.getByRole('button', { name: 'Cancel turn' }).waitFor({ state: 'detached' });
  await ask(page, '[[say alive]]');
  await log(page).getByText('alive', { exact: true }).waitFor();
  await page.getByRole('button', { name: 'Close', exact: true }).click();
  await page.getByRole('button', { name: 'Close it' }).click();
  await page.getByText('This session is closed.').waitFor();
  await close(page);
});

it('a session is created and prompted from the page', async (hob) => {
  const page = await visit(browser, hob, '/sessions');
  await page.getByRole('button', { name: 'New session' }).click();
  // The default agent is chosen already.
  await until('the agents are there', async () => (await page.getByLabel(/^Agent/).inputValue()) === 'claude');
  await page.getByLabel(/^Agent/).selectOption('acp');
  await page.getByLabel(/First words/).fill('good morning');
  await page.getByRole('button', { name: 'Start', exact: true }).click();
  await log(page).getByText('echo: good morning').waitFor();
  assert.match(page.url(), /#\/sessions\/[0-9a-f]{32}$/);
  await close(page);
});

/** Searches, and waits until the hits are those of the question. */
async function search(page, words) {
  await page.getByLabel('Search the memory').fill(words);
  await until('the answer is there', async () => {
    const asked = new URLSearchParams(page.url().split('?')[1] ?? '').get('q');
    return asked === words && (await page.locator('.hits[aria-busy="false"] .hit mark').count()) > 0;
  });
}

it('the memory is searched while typing, corrected and forgotten', async (hob) => {
  hob.remember([
    ['user', 'Why did the login test fail on Tuesday?'],
    ['assistant', 'The login test failed because the cookie was Secure on plain http.'],
    ['user', 'The deploy key is ghp_0123456789abcdefghijABCDEFGHIJ012345 for now'],
    ['assistant', 'Tabs are four wide in this repository.'],
  ]);
  const page = await visit(browser, hob, '/now');
  // By the keyboard alone.
  await page.keyboard.press('g');
  await page.keyboard.press('m');
  await page.getByRole('heading', { name: 'Memory' }).waitFor();
  await page.getByText('Tabs are four wide').waitFor();
  await page.keyboard.press('/');
  await page.keyboard.type('login failed');
  await until('the best hit is marked', async () => {
    const first = page.locator('.hit').first();
    return (await first.locator('mark').count()) >= 2 && (await first.textContent()).includes('matches login');
  });
  assert.ok(page.url().includes('q=login+failed') || page.url().includes('q=login%20failed'));
  await page.keyboard.press('Escape');
  await page.keyboard.press('j');
  await page.keyboard.press('Enter');
  const detail = page.getByRole('complementary', { name: 'The chosen turn' });
  await detail.locator('.detail-text').getByText(/login test fail/).waitFor();
  // A secret is shown only on request.
  await search(page, 'deploy key');
  await page.locator('.hit').filter({ hasText: 'deploy key' }).first().click();
  await detail.locator('.detail-text').getByText('[secret:github-token]').waitFor();
  await detail.getByRole('button', { name: 'Unseal' }).click();
  await detail.locator('.detail-text').getByText('ghp_0123456789').waitFor();
  await detail.getByRole('button', { name: 'Seal again' }).click();
  await search(page, 'tabs four wide');
  await page.locator('.hit').filter({ hasText: 'Tabs are four wide' }).first().click();
  await detail.getByRole('button', { name: 'Correct' }).click();
  await page.getByLabel('As it should be remembered').fill('Tabs are two wide in this repository.');
  await page.getByRole('dialog').getByRole('button', { name: 'Correct', exact: true }).click();
  await page.locator('.hit').filter({ hasText: 'two wide' }).first().waitFor();
  await page.locator('.hit').filter({ hasText: 'two wide' }).first().click();
  await detail.getByRole('button', { name: 'Forget', exact: true }).click();
  await page.getByText('you can undo this').waitFor();
  await page.getByRole('dialog').getByRole('button', { name: 'Forget', exact: true }).click();
  await page.getByText('1 turn forgotten.').waitFor();
  await page.locator('.hit').filter({ hasText: 'two wide' }).waitFor({ state: 'detached' });
  await page.getByRole('button', { name: 'Undo' }).click();
  await page.getByText('1 turn restored.').waitFor();
  await page.locator('.hit').filter({ hasText: 'two wide' }).first().waitFor();
  // A filter without hits says so.
  await page.getByLabel('From').fill('2031-01-01');
  await page.getByText('No hits').waitFor();
  await close(page);
});

it('an app is created, its token shown once, and revoked', async (hob) => {
  const page = await visit(browser, hob, '/apps');
  await page.getByText('No app yet').waitFor();
  await page.getByRole('button', { name: 'New app' }).click();
  await page.getByLabel(/^Name/).fill('shop-bot');
  await page.getByRole('button', { name: 'Make it' }).click();
  const token = await page.locator('[data-token]').textContent();
  assert.match(token, /^hob_/);
  const { session_id: id } = await hob.call('POST', '/sessions', { agent: 'acp' }, token);
  await hob.call('POST', `/sessions/${id}/turn`, { prompt: 'hello' }, token);
  await page.getByRole('button', { name: 'I have it' }).click();
  assert.ok(!(await page.content()).includes(token), 'the token is gone with its dialog');
  await page.reload();
  await page.locator('.app-row').getByText('1 turn today').waitFor();
  await page.getByRole('img', { name: /Turns: 1 in 30 days/ }).waitFor();
  await page.getByRole('button', { name: 'Revoke' }).click();
  await page.getByRole('dialog').getByRole('button', { name: 'Revoke' }).click();
  await page.getByText('No app yet').waitFor();
  await assert.rejects(hob.call('GET', '/sessions', undefined, token), /401/);
  await close(page);
});

it('health shows checks, settings and the audit', async (hob) => {
  const page = await visit(browser, hob, '/health');
  await page.getByRole('list', { name: 'Checks' }).getByText('server', { exact: true }).waitFor();
  await page.getByLabel('Filter settings').fill('max_live');
  await page.getByText('sessions.max_live').waitFor();
  await page.getByRole('cell', { name: 'login', exact: true }).waitFor();
  await close(page);
});

it('a server restart is shown, and the page reconnects by itself', async (hob) => {
  const id = await hob.session();
  await hob.ask(id, '[[say before the restart]]');
  await hob.idle(id);
  const page = await visit(browser, hob, `/sessions/${id}`);
  await log(page).getByText('before the restart', { exact: true }).waitFor();
  await hob.end('SIGKILL');
  await page.getByText('Hob is away. Reconnecting…').waitFor({ timeout: 15_000 });
  assert.equal(await log(page).getByText('before the restart', { exact: true }).count(), 1);
  await hob.start();
  await page.getByText('Hob is away. Reconnecting…').waitFor({ state: 'detached', timeout: 15_000 });
  // No new sign-in is needed, and new events appear.
  await hob.ask(id, '[[say after the restart]]');
  await log(page).getByText('after the restart', { exact: true }).waitFor();
  assert.equal(await log(page).getByText('before the restart', { exact: true }).count(), 1);
  await close(page);
});

it('the keyboard reaches every page', async (hob) => {
  const page = await visit(browser, hob, '/now');
  for (const [key, name] of [['s', 'Sessions'], ['m', 'Memory'], ['a', 'Apps'], ['h', 'Health'], ['n', 'Now']]) {
    await page.keyboard.press('g');
    await page.keyboard.press(key);
    await page.getByRole('heading', { name, level: 1 }).waitFor();
  }
  await page.keyboard.press('?');
  await page.getByRole('dialog', { name: 'Keys' }).waitFor();
  await page.keyboard.press('Escape');
  await page.getByRole('dialog', { name: 'Keys' }).waitFor({ state: 'detached' });
  await page.keyboard.press('Control+k');
  await page.getByRole('combobox').waitFor();
  await page.keyboard.type('heal');
  await page.getByRole('option', { name: /Health/ }).waitFor();
  await page.keyboard.press('Enter');
  await page.getByRole('heading', { name: 'Health' }).waitFor();
  await close(page);
});

it('the colour scheme follows the system until the user chooses', async (hob) => {
  const page = await visit(browser, hob, '/now', { colorScheme: 'dark' });
  const ground = () => page.evaluate(() => getComputedStyle(document.body).backgroundColor);
  assert.equal(await ground(), 'rgb(22, 18, 14)');
  await page.emulateMedia({ colorScheme: 'light' });
  await until('it is light', async () => (await ground()) === 'rgb(250, 246, 239)');
  await page.getByRole('button', { name: 'Dark colours' }).first().click();
  await until('it is dark', async () => (await ground()) === 'rgb(22, 18, 14)');
  await page.reload();
  await page.getByRole('heading', { name: 'Now' }).waitFor();
  assert.equal(await ground(), 'rgb(22, 18, 14)');
  assert.deepEqual(await page.evaluate(() => Object.keys(localStorage)), ['hob.theme']);
  await close(page);
});

it('a phone shows every page without sideways scrolling', async (hob) => {
  const id = await hob.session('acp', { permissions: 'ask' });
  await hob.ask(id, '[[think a thought]] [[tool Bash {"command":"echo hi"}]] [[permission write to a rather long path of this machine]]');
  hob.remember([['user', 'a turn with averylongwordwithoutanyspacesinitthatwouldotherwisemakethepagewiderthanitis'.repeat(3)]]);
  await hob.app('phone-app');
  const page = await visit(browser, hob, '/now', { viewport: { width: 375, height: 740 }, isMobile: true, hasTouch: true });
  const pages = [['/now', 'Now'], ['/sessions', 'Sessions'], [`/sessions/${id}`, null], ['/memory', 'Memory'], ['/apps', 'Apps'], ['/health', 'Health']];
  for (const [place, heading] of pages) {
    await page.evaluate((where) => { location.hash = where; }, place);
    if (heading) await page.getByRole('heading', { name: heading, level: 1 }).waitFor();
    else await page.getByRole('group', { name: /rather long path/ }).waitFor();
    const over = await page.evaluate(() => Math.max(document.documentElement.scrollWidth, document.querySelector('main').scrollWidth) - window.innerWidth);
    assert.ok(over <= 0, `${place} is ${over} pixels too wide`);
    assert.ok(await page.locator('nav.tabs').isVisible() && !(await page.locator('.sidebar').isVisible()));
  }
  await page.locator('nav.tabs').getByText('Sessions').tap();
  await page.getByRole('heading', { name: 'Sessions' }).waitFor();
  await close(page);
});

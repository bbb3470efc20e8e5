// Every page by the rules of axe, in both colour schemes, on a desk and on a phone; and by the keyboard alone.
import assert from 'node:assert/strict';
import { after, before, test } from 'node:test';

import { AxeBuilder } from '@axe-core/playwright';

import { close, Hob, launch, open, PHONE, signIn, until, visit } from './harness.mjs';

let browser;
before(async () => {
  browser = await launch();
});
after(() => browser.close());

const DIFF = { toolCallId: 'change', title: 'Edit src/refund.ts', content: [{ type: 'diff', path: '/src/refund.ts', oldText: 'a\nb\nc\n', newText: 'a\nB\nc\n' }] };
const OPTIONS = [{ optionId: 'yes', name: 'Allow', kind: 'allow_once' }, { optionId: 'always', name: 'Always', kind: 'allow_always' }, { optionId: 'no', name: 'Reject', kind: 'reject_once' }];
const WORDS = [
  '[[think Where does the time go?]]',
  '[[tool Bash {"command":"echo hi"}]]',
  '[[tool Edit {"file_path":"/src/a.ts","old_string":"x","new_string":"y"}]]',
  '[[say # Result\n\nSee [the notes](https://example.com/notes) and `code`:\n\n- one\n- two\n\n| name | port |\n|---|---|\n| hob | 7717 |\n\n```sh\necho a line that is far too long for a phone, so that it has to be scrolled sideways to be read at all\n```]]',
].join(' ');

const FORM = `[[request elicitation/create ${JSON.stringify({
  mode: 'form',
  message: 'Which port?',
  requestedSchema: { type: 'object', required: ['port'], properties: { port: { type: 'integer', title: 'Port' }, host: { type: 'string', enum: ['a', 'b'] }, fast: { type: 'boolean' } } },
})}]]`;

async function fill(hob) {
  const turns = Array.from({ length: 9 }, (_, at) => [at % 2 ? 'assistant' : 'user', `Turn ${at} about the login test and the deploy branch, with some more words in it.`]);
  hob.remember([...turns, ['user', 'The deploy key is ghp_0123456789abcdefghijABCDEFGHIJ012345 for now.']]);
  const token = await hob.app('shop-bot');
  const { session_id: app } = await hob.call('POST', '/sessions', { agent: 'acp', meta: { title: 'Nightly build' } }, token);
  await hob.call('POST', `/sessions/${app}/turn`, { prompt: 'hello' }, token);
  const claude = await hob.session('claude');
  await hob.ask(claude, '[[say a screen]]');
  // A process of the Claude backend, which has no session.
  await hob.call('POST', '/v1/messages', { model: 'claude', max_tokens: 9, messages: [{ role: 'user', content: '[[say hello]]' }] }, token);
  const process = await until('it is live', async () => (await hob.call('GET', '/admin/live')).live.find((one) => one.kind !== 'session')?.id);
  const done = await hob.session('acp');
  await hob.ask(done, WORDS);
  const asks = await hob.session('acp', { permissions: 'ask' });
  await hob.ask(asks, `[[request session/request_permission ${JSON.stringify({ toolCall: DIFF, options: OPTIONS })}]]`);
  const writes = await hob.session('claude');
  await hob.ask(writes, '[[say half of a text]] [[hang]]');
  const form = await hob.session('acp', { permissions: 'ask' });
  await hob.ask(form, FORM);
  await hob.idle(done);
  await hob.idle(claude);
  return { claude, done, asks, form, process, writes };
}

/** The pages, each with what has to be there before it is looked at. */
const places = ({ claude, done, asks, form, process, writes }) => [
  ['/now', (page) => page.locator('.tile ins').waitFor()],
  ['/sessions', (page) => page.locator('.list ins').waitFor()],
  [`/sessions/${done}`, (page) => page.locator('.said').getByRole('cell', { name: '7717' }).waitFor()],
  [`/sessions/${asks}`, (page) => page.getByRole('group', { name: /May it/ }).waitFor()],
  [`/sessions/${form}`, (page) => page.getByRole('group', { name: 'It asks: Which port?' }).waitFor()],
  [`/sessions/${writes}`, (page) => page.getByRole('group', { name: 'The screen of claude' }).getByText('half of a text').first().waitFor()],
  [`/live/${process}`, (page) => page.locator('.xterm-rows').waitFor()],
  [`/sessions/${claude}/terminal`, (page) => page.locator('.xterm-rows').waitFor()],
  ['/memory', (page) => page.locator('.hits[aria-busy="false"] .hit').first().waitFor()],
  ['/memory?q=deploy+key', async (page) => {
    await page.locator('.hits[aria-busy="false"] .hit').first().click();
    await page.locator('.timeline li').first().waitFor();
  }],
  ['/memory?q=zzyzx+quux&until=1999-01-01', (page) => page.getByText('No hits').waitFor()],
  ['/apps?app=shop-bot', (page) => page.getByRole('img', { name: /^Cost/ }).waitFor()],
  ['/health', (page) => page.getByRole('cell', { name: 'login', exact: true }).first().waitFor()],
  ['/nowhere', (page) => page.getByText('No such page').waitFor()],
];

/** The dialogs, each with its name and the way to it: a place, and the control that opens it. */
const dialogs = ({ done }) => [
  ['New session', '/sessions', (page) => page.getByRole('button', { name: 'New session' })],
  ['New app', '/apps', (page) => page.getByRole('button', { name: 'New app' })],
  ['Close this session?', `/sessions/${done}`, (page) => page.locator('.session-head').getByRole('button', { name: 'Close', exact: true })],
  ['Correct', '/memory?q=deploy+key', (page) => page.locator('.detail').getByRole('button', { name: 'Correct' })],
  ['Forget this turn?', '/memory?q=deploy+key', (page) => page.locator('.detail').getByRole('button', { name: 'Forget', exact: true })],
  ['Forget the whole session?', '/memory?q=deploy+key', (page) => page.locator('.detail').getByRole('button', { name: 'Forget the session' })],
  ['Revoke shop-bot?', '/apps', (page) => page.getByRole('button', { name: 'Revoke' })],
];

/** Opens a dialog by the keyboard alone. */
async function openDialog(page, [name, place, control]) {
  await page.evaluate((hash) => { location.hash = hash; }, place);
  if (place.startsWith('/memory') && !(await page.locator('.detail').count())) await page.locator('.hits[aria-busy="false"] .hit').first().click();
  await control(page).focus();
  await page.keyboard.press('Enter');
  await page.getByRole('dialog', { name, exact: true }).waitFor();
}

/** All rules in the dark; in the light only those that the colours decide. */
const RULES = {
  dark: { rules: { 'label-content-name-mismatch': { enabled: true } }, resultTypes: ['violations'] },
  light: { runOnly: ['color-contrast', 'link-in-text-block'], resultTypes: ['violations'] },
};

async function findings(page, where, colorScheme) {
  // An agent's own screen has the colours that the agent chose.
  // Without frames of other origins, axe needs no page of its own, which takes half of the time.
  const axe = new AxeBuilder({ page }).setLegacyMode().options(RULES[colorScheme]).exclude('.xterm');
  // The page under a dialog was looked at without it.
  if (await page.locator('dialog[open]').count()) axe.include('dialog[open]');
  const { violations } = await axe.analyze();
  return violations
    .filter((rule) => rule.impact === 'serious' || rule.impact === 'critical')
    .flatMap((rule) => rule.nodes.map((node) => `${where}: ${rule.id}: ${node.target.join(' ')}: ${node.any[0]?.message ?? node.failureSummary}`));
}

for (const [size, options] of [['1400', { viewport: { width: 1400, height: 900 } }], ['390', PHONE]]) {
  test(`axe finds nothing serious at ${size} pixels`, { timeout: 300_000 }, async () => {
    const hob = new Hob();
    try {
      await hob.start();
      const made = await fill(hob);
      const page = await open(browser, hob, { ...options, reducedMotion: 'reduce' });
      const found = [];
      const look = async (where) => {
        for (const colorScheme of ['dark', 'light']) {
          await page.emulateMedia({ colorScheme, reducedMotion: 'reduce' });
          await page.waitForFunction((theme) => document.documentElement.dataset.theme === theme, colorScheme);
          found.push(...(await findings(page, `${where} ${colorScheme}`, colorScheme)));
        }
      };
      await page.getByLabel('Admin token').waitFor();
      await look('sign-in');
      await signIn(page, hob);
      for (const [place, ready] of places(made)) {
        await page.evaluate((hash) => { location.hash = hash; }, place);
        await ready(page);
        await look(place);
      }
      await page.evaluate(() => { location.hash = '/now'; });
      await page.locator('.tile').first().waitFor();
      for (const key of ['?', 'Control+k']) {
        await page.keyboard.press(key);
        await page.locator('dialog[open]').waitFor();
        await look(`the dialog of ${key}`);
        await page.keyboard.press('Escape');
        await page.locator('dialog[open]').waitFor({ state: 'detached' });
      }
      for (const dialog of dialogs(made)) {
        await openDialog(page, dialog);
        await look(dialog[0]);
        await page.keyboard.press('Escape');
        await page.locator('dialog[open]').waitFor({ state: 'detached' });
      }
      // The token of an app that was just made.
      await page.evaluate(() => { location.hash = '/apps?new=1'; });
      await page.getByLabel(/^Name/).fill('night-bot');
      await page.getByRole('button', { name: 'Make it' }).click();
      await page.locator('[data-token]').waitFor();
      await look('the token');
      await page.getByRole('button', { name: 'I have it' }).click();
      await page.evaluate(() => { location.hash = '/now'; });
      await page.context().clearCookies();
      await page.getByText('Sign-in expired').waitFor({ timeout: 15_000 });
      await look('Sign-in expired');
      await signIn(page, hob);
      assert.deepEqual([...new Set(found)], []);
      for (const id of [made.asks, made.form, made.writes]) await hob.call('POST', `/admin/sessions/${id}/cancel`);
      await hob.end('SIGKILL');
      await page.getByText('Hob is away. Reconnecting…').waitFor({ timeout: 15_000 });
      await look('Hob is away');
      assert.deepEqual([...new Set(found)], []);
      await close(page);
    } finally {
      await hob.stop();
    }
  });
}

test('every control is reached with Tab, and shows that it has the focus', { timeout: 180_000 }, async () => {
  const hob = new Hob();
  try {
    await hob.start();
    const made = await fill(hob);
    const page = await visit(browser, hob, '/now', { viewport: { width: 1400, height: 900 }, reducedMotion: 'reduce' });
    for (const [place, ready] of places(made).filter(([where]) => !where.includes('terminal') && !where.includes('live/'))) {
      await page.evaluate((hash) => { location.hash = hash; }, place);
      await ready(page);
      // Rows come and go with the server; the controls that are there all the time have to be reached, without exception.
      const reached = new Set();
      await page.evaluate(() => {
        for (const element of document.querySelectorAll('[data-reached]')) delete element.dataset.reached;
        for (const element of document.querySelectorAll('a[href], button:not(:disabled), input, select, textarea')) {
          if (element.checkVisibility() && element.getClientRects().length) element.dataset.there = 'yes';
          else delete element.dataset.there;
        }
        document.activeElement?.blur();
        document.body.tabIndex = -1;
        document.body.focus();
      });
      const name = () => page.evaluate(() => {
        const active = document.activeElement;
        if (!active || active === document.body) return null;
        active.dataset.reached = 'yes';
        const drawn = (element) => { const style = getComputedStyle(element); return style.outlineStyle !== 'none' && parseFloat(style.outlineWidth) > 0; };
        const around = active.closest('.tile, .searchbox, .palette-field, .terminal-frame');
        // The browser draws the focus on the parts of a date itself.
        const seen = active.type === 'date' || drawn(active) || (around && (drawn(around) || getComputedStyle(around).boxShadow !== 'none'));
        return { what: `${active.tagName} ${active.className} ${(active.textContent ?? '').slice(0, 30)}`, seen: Boolean(seen) };
      });
      for (let step = 0; step < 150; step += 1) {
        await page.keyboard.press('Tab');
        const now = await name();
        if (!now) break;
        assert.ok(now.seen, `${place}: no focus is seen on ${now.what}`);
        reached.add(now.what);
      }
      const missed = await page.evaluate(() => [...document.querySelectorAll('[data-there]:is(a[href], button:not(:disabled), input, select, textarea)')]
        .filter((element) => element.checkVisibility() && element.getClientRects().length && element.dataset.reached !== 'yes')
        .map((element) => `${element.tagName} ${element.className} ${element.textContent.slice(0, 30)}`));
      assert.deepEqual(missed, [], place);
      assert.ok(reached.size > 8, `${place}: ${reached.size}`);
    }
    // In a dialog the focus is inside, and stays there; afterwards it is where it was.
    for (const dialog of dialogs(made)) {
      await openDialog(page, dialog);
      const inside = page.getByRole('dialog', { name: dialog[0], exact: true });
      // A new one can be made: the agents are loaded, and the name is there.
      if (dialog[0] === 'New app') await inside.getByLabel(/^Name/).fill('day-bot');
      if (dialog[0].startsWith('New ')) await inside.locator('button[type="submit"]:enabled').waitFor();
      // What destroys something is not done by pressing Enter twice.
      if (dialog[0].endsWith('?')) assert.equal(await inside.locator(':focus').textContent(), 'Leave it', dialog[0]);
      const controls = await inside.locator('button:not(:disabled), input, select, textarea').count();
      const reached = new Set();
      for (let step = 0; step < 2 * controls + 2; step += 1) {
        const at = await inside.evaluate((element) => {
          const active = document.activeElement;
          const all = [...element.querySelectorAll('button:not(:disabled), input, select, textarea')];
          return active === document.body ? 'the browser' : all.indexOf(active);
        });
        assert.notEqual(at, -1, `${dialog[0]}: the focus has left the dialog`);
        reached.add(at);
        await page.keyboard.press('Tab');
      }
      reached.delete('the browser');
      assert.equal(reached.size, controls, dialog[0]);
      await page.keyboard.press('Escape');
      await inside.waitFor({ state: 'detached' });
      assert.ok(await dialog[2](page).evaluate((control) => control === document.activeElement), `${dialog[0]}: the focus is back`);
    }
    // A terminal takes every key, except for the one that leaves it.
    await page.evaluate((hash) => { location.hash = hash; }, `/sessions/${made.claude}/terminal`);
    await page.locator('.xterm').click();
    await page.keyboard.press('F6');
    await until('the focus is outside of the terminal', () => page.evaluate(() => !document.activeElement.closest('.xterm')));
    for (const id of [made.asks, made.form, made.writes]) await hob.call('POST', `/admin/sessions/${id}/cancel`);
    await close(page);
  } finally {
    await hob.stop();
  }
});

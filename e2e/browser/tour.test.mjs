// A tour of all pages with realistic data, in both colour schemes and on a phone. UPDATE_SCREENSHOTS=1 writes the
// screenshots to docs/assets/, and four of them as a picture that moves.
import assert from 'node:assert/strict';
import { mkdirSync, statSync, writeFileSync } from 'node:fs';
import path from 'node:path';
import { test } from 'node:test';

import { animation } from './animation.mjs';
import { close, Hob, launch, open, player, root, signIn, storyteller, until } from './harness.mjs';

const assets = path.join(root, 'docs/assets');
const keep = process.env.UPDATE_SCREENSHOTS === '1';

const CLAUDE = [
  '[[tool Read {"file_path":"src/worker/queue.ts"}]] [[tool Grep {"pattern":"heapUsed","path":"src"}]]',
  '[[say The worker was killed at 03:12: its heap grew by 40 MB a minute.]]',
  '[[say Jobs that fail are kept in `retries` and never taken out again.]]',
  '[[tool Edit {"file_path":"src/worker/queue.ts"}]] [[say Fixed: a job leaves the map when it is done.]] [[until never]]',
].join(' ');

const day = (days, hours) => new Date(Date.now() - days * 86_400_000 - hours * 3_600_000).toISOString();

function remember(hob) {
  const shop = '/home/ada/src/shop';
  hob.remember(
    [
      ['user', 'Why did the login test fail on CI last night?', day(2, 3)],
      ['assistant', 'The login test failed because the session cookie is set with `Secure`, and the test server speaks plain http. The flag now follows the scheme of the request, and the test passes.', day(2, 3)],
      ['user', 'Good. Remember that we deploy from the release branch only, never from main.', day(2, 2.9)],
      ['assistant', 'Noted: deployments go out from `release`; `main` is for integration.', day(2, 2.9)],
    ],
    '0197a2f4-1111-4d7e-9a55-3f8b1c2d4e5f',
    shop,
  );
  hob.remember(
    [
      ['user', 'The login page is slow for customers with many orders. Where does the time go?', day(1, 5)],
      ['assistant', 'Most of it goes into one query: after a login the dashboard loads every order to count them. A count in SQL takes 2 ms instead of 900. The failing part of the test was only the timeout.', day(1, 5)],
      ['user', 'The staging token is ghp_0123456789abcdefghijABCDEFGHIJ012345, use it for the smoke test.', day(1, 4.8)],
      ['assistant', 'The smoke test passes on staging.', day(1, 4.7)],
    ],
    '0197a2f4-2222-4d7e-9a55-3f8b1c2d4e5f',
    shop,
  );
  hob.remember(
    [
      ['user', 'Which encoding do the price lists of the suppliers have?', day(5, 1)],
      ['assistant', 'Windows-1252, except for Brandt & Sons, who send UTF-8 with a byte order mark. The importer tells them apart by the mark.', day(5, 1)],
    ],
    '0197a2f4-3333-4d7e-9a55-3f8b1c2d4e5f',
    '/home/ada/src/price-import',
  );
}

test('a tour of the console', { timeout: 240_000 }, async () => {
  const hob = new Hob();
  const script = path.join(hob.user, 'claude.script');
  writeFileSync(script, `${CLAUDE}\n`);
  const agents = [
    player(hob, 'claude', script),
    storyteller(hob, 'codex', 'fix'),
    storyteller(hob, 'gemini', 'watch'),
    storyteller(hob, 'opencode', 'review'),
  ];
  writeFileSync(path.join(hob.home, 'config.toml'), `[limits]\napp_sessions = 8\napp_cost_usd_per_day = 20.0\n${agents.join('')}`, { mode: 0o600 });
  const browser = await launch();
  const made = [];
  try {
    await hob.start();
    remember(hob);
    const shop = await hob.app('shop-bot');
    const nightly = await hob.app('nightly');
    const make = async (token, agent, title, prompt, more = {}) => {
      const { session_id: id } = await hob.call('POST', '/sessions', { agent, meta: { title }, ...more }, token);
      const response = await fetch(`${hob.url}/sessions/${id}/turn`, {
        method: 'POST',
        headers: { authorization: `Bearer ${token}`, prefer: 'respond-async', 'content-type': 'application/json' },
        body: JSON.stringify({ prompt }),
      });
      assert.equal(response.status, 202);
      return id;
    };
    const review = await make(shop, 'opencode', 'Review of #412', 'Review the changes of #412. What would you change before it is merged?');
    await make(nightly, 'gemini', 'Nightly build', 'Watch the nightly build and tell me when a shard goes red.');
    const refund = await hob.session('codex', { permissions: 'ask', meta: { title: 'Refunds are off by a cent' } });
    await hob.ask(refund, 'The refund of order 1043 is one cent too low. Find out why, fix it, and run the tests.');
    const worker = await make(shop, 'claude', 'Worker runs out of memory', 'The worker was killed twice this night. Find out why.');
    await hob.idle(review);

    const page = await open(browser, hob, { colorScheme: 'dark', reducedMotion: 'reduce', viewport: { width: 1160, height: 760 } });
    const write = (name, bytes) => {
      if (!keep) return;
      mkdirSync(assets, { recursive: true });
      writeFileSync(path.join(assets, `${name}.png`), bytes);
      made.push(name);
    };
    const shot = async (name) => {
      await page.evaluate(() => document.fonts.ready);
      await page.mouse.move(0, 0);
      const png = await page.screenshot({ animations: 'disabled' });
      assert.ok(png.length < 150 * 1024, `${name} has ${png.length} bytes`);
      return png;
    };
    const picture = async (name) => write(name, await shot(name));
    const frames = [];
    const frame = async (what, ms) => frames.push({ png: await shot(what), ms });
    const go = (where) => page.evaluate((hash) => { location.hash = hash; }, where);
    await page.getByLabel('Admin token').waitFor();
    await signIn(page, hob);

    await until('all tiles are there', async () => (await page.locator('.tile').count()) === 4);
    await page.locator('.tail').getByText(/Shard 2/).first().waitFor();
    await until('the terminal is drawn', () => page.locator('canvas').evaluate((canvas) => canvas.width > 400));
    await page.waitForTimeout(1200);
    await frame('four sessions', 3500);
    await page.setViewportSize({ width: 1160, height: 920 });
    await picture('console-now');
    await page.setViewportSize({ width: 1160, height: 760 });

    await go(`/sessions/${refund}`);
    await page.getByRole('group', { name: /npm test/ }).waitFor();
    await page.getByRole('button', { name: /Search/ }).waitFor();
    await picture('console-session');
    await frame('a question', 3500);
    await page.getByRole('button', { name: 'Allow once' }).click();
    await page.getByText('All 36 billing tests pass').waitFor();
    await page.locator('.session-head').getByText('idle').waitFor();
    await frame('the answer', 3500);
    await go(`/sessions/${review}`);
    await page.locator('.said li').getByText('is never used by a query').waitFor();
    await page.locator('.said').getByRole('link', { name: /\(example\.com\)$/ }).waitFor();
    await frame('a review', 6000);
    const tour = animation(frames);
    assert.ok(tour.length < 480 * 1024, `the picture that moves has ${tour.length} bytes`);
    // The browser sees all of them in it.
    const decoded = await page.evaluate(async (text) => {
      const data = Uint8Array.from(atob(text), (character) => character.charCodeAt(0));
      const decoder = new ImageDecoder({ data, type: 'image/png' });
      await decoder.tracks.ready;
      const { image } = await decoder.decode({ frameIndex: 3 });
      return { frames: decoder.tracks.selectedTrack.frameCount, height: image.displayHeight };
    }, tour.toString('base64'));
    assert.deepEqual(decoded, { frames: 4, height: 760 });
    write('console-tour', tour);

    await go(`/sessions/${worker}/terminal`);
    await until('the terminal shows the work', async () => (await page.locator('.xterm-rows').textContent()).includes('leaves the map'));
    await picture('console-terminal');

    await page.emulateMedia({ colorScheme: 'light' });
    await go('/memory?q=login+failed');
    await page.locator('.hit').filter({ hasText: 'Secure' }).click();
    await page.locator('.timeline li.here').waitFor();
    await page.evaluate(() => document.activeElement.blur());
    await page.setViewportSize({ width: 1160, height: 720 });
    await picture('console-memory');
    await page.setViewportSize({ width: 1160, height: 760 });
    await go('/apps');
    await page.getByRole('img', { name: /^Turns/ }).waitFor();
    await page.locator('.app-row').first().waitFor();
    await page.getByText('limits.app_sessions').waitFor();
    await picture('console-apps');
    await go('/health');
    await page.getByRole('list', { name: 'Checks' }).waitFor();
    await page.getByRole('cell', { name: 'login', exact: true }).waitFor();
    await picture('console-health');
    await go('/sessions');
    await page.getByText('Refunds are off by a cent').waitFor();
    await picture('console-sessions');
    await page.keyboard.press('Control+k');
    await page.getByRole('combobox').waitFor();
    await page.keyboard.type('ref');
    await page.getByRole('option').first().waitFor();
    await page.keyboard.press('Escape');

    await page.emulateMedia({ colorScheme: 'dark' });
    await page.setViewportSize({ width: 390, height: 780 });
    await go(`/sessions/${refund}`);
    await page.getByText('All 36 billing tests pass').waitFor();
    await picture('console-phone');
    for (const name of made) assert.ok(statSync(path.join(assets, `${name}.png`)).size > 5000);
    await hob.call('POST', `/admin/sessions/${worker}/cancel`);
    await close(page);
  } finally {
    await browser.close();
    await hob.stop();
  }
});

// Notifications of the browser, and the console through a tunnel with TLS.
import assert from 'node:assert/strict';
import { execFileSync } from 'node:child_process';
import { readFileSync } from 'node:fs';
import http from 'node:http';
import https from 'node:https';
import path from 'node:path';
import { after, before, test } from 'node:test';

import { AGENTS, assertView, close, Hob, launch, open, signIn, TWO_VIEWS, until } from './harness.mjs';

const NAME = 'hob.test';
const [[, desk], [, phone]] = TWO_VIEWS;
let browser;
before(async () => {
  browser = await launch([`--host-resolver-rules=MAP ${NAME} 127.0.0.1`, '--ignore-certificate-errors']);
});
after(() => browser.close());

/** Opens a page that may notify, as if in the background. */
async function background(hob, options = {}) {
  const page = await open(browser, hob, options);
  await page.context().grantPermissions(['notifications'], { origin: hob.url });
  await page.addInitScript(() => { document.hasFocus = () => false; });
  await page.reload();
  await signIn(page, hob);
  return page;
}

const shown = (page) => page.evaluate(async () => {
  const registration = await navigator.serviceWorker.getRegistration('/assets/');
  const list = (await registration?.getNotifications()) ?? [];
  return list.map(({ title, body, actions }) => ({ title, body, actions: actions.map((one) => one.action) }));
});

/** Clicks a notification, or one of its buttons. */
async function click(page, title, action = '') {
  const worker = page.context().serviceWorkers()[0];
  await worker.evaluate(async ([title, action]) => {
    const list = await self.registration.getNotifications();
    const notification = list.find((one) => one.title.includes(title));
    self.dispatchEvent(new NotificationEvent('notificationclick', { notification, action }));
  }, [title, action]);
}

const question = (title, command) =>
  `[[request session/request_permission ${JSON.stringify({
    toolCall: { toolCallId: title, title, kind: 'execute', rawInput: { command } },
    options: [{ optionId: 'yes', name: 'Allow', kind: 'allow_once' }, { optionId: 'no', name: 'Reject', kind: 'reject_once' }],
  })}]]`;

const answers = async (hob, id) => {
  const { events } = await hob.call('GET', `/admin/sessions/${id}/events?before=9999999&limit=200`);
  return events.filter((event) => event.event === 'permission' && event.status === 'answered').map((event) => event.option);
};

test('questions and finished turns are notified of, and answered from there', { timeout: 120_000 }, async () => {
  const hob = new Hob();
  try {
    await hob.start();
    const page = await background(hob, desk);
    await assertView(page, desk);
    const id = await hob.session('acp', { permissions: 'ask' });
    // Nothing is notified of until somebody turns it on.
    const control = page.getByRole('switch', { name: 'Notifications' }).first();
    assert.equal(await control.getAttribute('aria-checked'), 'false');
    await control.click();
    await until('it is on', async () => (await control.getAttribute('aria-checked')) === 'true');
    await hob.ask(id, `${question('Bash: rm -rf build', 'rm -rf build')} ${question('Bash: git push', 'git push')} ${question('Bash: reboot', 'reboot')}`);
    const first = await until('the question is shown', async () => (await shown(page)).find((one) => one.title.includes('rm -rf build')));
    assert.deepEqual(first, { title: 'acp asks: Bash: rm -rf build', body: 'rm -rf build', actions: ['allow', 'deny'] });
    await click(page, 'rm -rf build', 'allow');
    await until('it is allowed', async () => (await answers(hob, id)).join() === 'yes');
    await until('the next one is shown', async () => (await shown(page)).some((one) => one.title.includes('git push')));
    await click(page, 'git push', 'deny');
    await until('it is denied', async () => (await answers(hob, id)).join() === 'yes,no');
    // A click on the notification itself leads to the question.
    await until('the last one is shown', async () => (await shown(page)).some((one) => one.title.includes('reboot')));
    await click(page, 'reboot');
    await page.waitForURL(new RegExp(`#/sessions/${id}$`));
    await page.getByRole('group', { name: /reboot/ }).getByRole('button', { name: 'Reject' }).click();
    await hob.idle(id);
    await until('the end of the turn is shown, and no question', async () => {
      const titles = (await shown(page)).map((one) => one.title);
      return titles.length === 1 && titles[0] === 'acp has finished its turn';
    });
    // The choice is remembered.
    await page.reload();
    await until('it is still on', async () => (await control.getAttribute('aria-checked')) === 'true');
    await control.click();
    await until('it is off', async () => (await control.getAttribute('aria-checked')) === 'false');
    assert.equal(await page.evaluate(() => localStorage.getItem('hob.notifications')), null);
    await close(page);
  } finally {
    await hob.stop();
  }
});

test('without the browser’s permission nothing is turned on', { timeout: 60_000 }, async () => {
  const hob = new Hob();
  try {
    await hob.start();
    const page = await open(browser, hob);
    await page.addInitScript(() => { Notification.requestPermission = () => Promise.resolve('denied'); });
    await page.reload();
    await signIn(page, hob);
    const control = page.getByRole('switch', { name: 'Notifications' }).first();
    await control.click();
    await page.getByText('This browser does not allow notifications for this page.').waitFor();
    assert.equal(await control.getAttribute('aria-checked'), 'false');
    await close(page);
  } finally {
    await hob.stop();
  }
});

/** A proxy with TLS in front of Hob, as docs/console.md describes it. */
async function tunnel(hob) {
  const [key, cert] = ['key.pem', 'cert.pem'].map((name) => path.join(hob.folder, name));
  execFileSync('openssl', ['req', '-x509', '-newkey', 'ec', '-pkeyopt', 'ec_paramgen_curve:prime256v1', '-nodes', '-days', '2', '-subj', `/CN=${NAME}`, '-addext', `subjectAltName=DNS:${NAME}`, '-keyout', key, '-out', cert], { stdio: 'ignore' });
  const { hostname, port } = new URL(hob.url);
  const server = https.createServer({ key: readFileSync(key), cert: readFileSync(cert) }, (request, response) => {
    const onward = http.request({ hostname, port, path: request.url, method: request.method, headers: request.headers }, (answer) => {
      response.writeHead(answer.statusCode, answer.headers);
      answer.pipe(response);
    });
    onward.on('error', () => response.destroy());
    response.on('close', () => onward.destroy());
    request.pipe(onward);
  });
  await new Promise((resolve) => server.listen(0, '127.0.0.1', resolve));
  return { url: `https://${NAME}:${server.address().port}`, token: hob.token, end: () => { server.closeAllConnections(); server.close(); } };
}

test('a phone reaches the console through a proxy with TLS', { timeout: 120_000 }, async () => {
  const hob = new Hob(AGENTS, `hosts = ["${NAME}"]`);
  let front;
  try {
    await hob.start();
    front = await tunnel(hob);
    const page = await background(front, phone);
    assert.ok(await page.evaluate(() => window.isSecureContext));
    const id = await hob.session('acp', { permissions: 'ask' });
    const control = page.locator('.topbar').getByRole('switch', { name: 'Notifications' });
    await control.tap();
    await until('it is on', async () => (await control.getAttribute('aria-checked')) === 'true');
    await hob.ask(id, question('Bash: make deploy', 'make deploy'));
    await until('the question is notified of', async () => (await shown(page)).some((one) => one.body === 'make deploy'));
    await assertView(page, phone);
    await page.locator('.tile').getByRole('button', { name: 'Allow', exact: true }).tap();
    await hob.idle(id);
    assert.deepEqual(await answers(hob, id), ['yes']);
    await close(page);
  } finally {
    front?.end();
    await hob.stop();
  }
});

// The console's build with the content policy of the real server, and everything else from a running Hob: for working on
// the pages without building Hob each time.
//
//   npx vite build --watch &  node dev/serve.mjs http://127.0.0.1:7717 [PORT] [--mock-live]
import { randomBytes } from 'node:crypto';
import { readFile } from 'node:fs/promises';
import http from 'node:http';
import net from 'node:net';
import path from 'node:path';
import { fileURLToPath } from 'node:url';

import * as mock from './live.mjs';

const target = new URL(process.argv[2] ?? 'http://127.0.0.1:7717');
const port = Number(process.argv[3] ?? 7718);
const mocked = process.argv.includes('--mock-live');
const dist = path.join(path.dirname(fileURLToPath(import.meta.url)), '../dist');
const types = { html: 'text/html; charset=utf-8', js: 'text/javascript', css: 'text/css', svg: 'image/svg+xml' };

const policy = (nonce) =>
  `default-src 'none'; script-src 'self'; style-src 'self' 'nonce-${nonce}'; img-src 'self' data:; font-src 'self'; ` +
  `connect-src 'self'; base-uri 'none'; form-action 'self'; frame-ancestors 'none'`;

const server = http.createServer(async (request, response) => {
  const { pathname } = new URL(request.url, 'http://here');
  if (pathname === '/' || pathname.startsWith('/assets/') || pathname === '/favicon.svg') {
    const file = path.join(dist, pathname === '/' ? 'index.html' : path.normalize(pathname));
    try {
      const nonce = randomBytes(16).toString('hex');
      const bytes = await readFile(file);
      const body = pathname === '/' ? bytes.toString().replaceAll('__HOB_NONCE__', nonce) : bytes;
      const type = types[path.extname(file).slice(1)] ?? 'application/octet-stream';
      response.writeHead(200, { 'content-type': type, 'content-security-policy': policy(nonce), 'cache-control': 'no-store' });
      response.end(body);
    } catch {
      response.writeHead(404).end();
    }
    return;
  }
  if (mocked && mock.answer(request, response)) return;
  const options = { host: target.hostname, port: target.port, path: request.url, method: request.method, headers: request.headers };
  const onward = http.request(options, (answer) => {
    response.writeHead(answer.statusCode, answer.headers);
    answer.pipe(response);
    answer.on('error', () => response.destroy());
    answer.on('close', () => answer.complete || response.destroy());
  });
  onward.on('error', () => response.destroy());
  response.on('close', () => onward.destroy());
  request.pipe(onward);
});

server.on('upgrade', (request, socket, head) => {
  if (mocked && mock.attach(request, socket)) return;
  const onward = net.connect(Number(target.port), target.hostname, () => {
    const lines = [`${request.method} ${request.url} HTTP/1.1`];
    for (let at = 0; at < request.rawHeaders.length; at += 2) lines.push(`${request.rawHeaders[at]}: ${request.rawHeaders[at + 1]}`);
    onward.write(`${lines.join('\r\n')}\r\n\r\n`);
    onward.write(head);
    onward.pipe(socket).pipe(onward);
  });
  onward.on('error', () => socket.destroy());
  socket.on('error', () => onward.destroy());
});

server.listen(port, '127.0.0.1', () => console.log(`http://127.0.0.1:${server.address().port}`));

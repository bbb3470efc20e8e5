// Live terminals that are not real, for working on the pages: `node dev/serve.mjs URL PORT --mock-live`.
import { createHash } from 'node:crypto';

const since = new Date(Date.now() - 754_000).toISOString();
const lines = [];
let typed = '';
let tick = 0;
const viewers = new Set();

const screen = () =>
  `\x1b[H\x1b[2J\x1b[1;38;5;208mClaude Code\x1b[0m  \x1b[2m~/src/shop\x1b[0m\r\n\r\n` +
  lines.slice(-14).map((line) => `${line}\r\n`).join('') +
  `\x1b[38;5;214m✻\x1b[0m Thinking… \x1b[2m(${tick} s · esc to interrupt)\x1b[0m\r\n${'─'.repeat(60)}\r\n❯ ${typed}`;

setInterval(() => {
  tick += 1;
  const kinds = ['\x1b[32m●\x1b[0m Read(src/billing/refund.ts)', '\x1b[36m●\x1b[0m I round the sum, not every line.', `\x1b[31m- ${tick}\x1b[0m  \x1b[32m+ ${tick + 1}\x1b[0m`, '\x1b[48;2;60;40;20m\x1b[38;2;255;200;120m true colour \x1b[0m'];
  lines.push(kinds[tick % kinds.length]);
  for (const viewer of viewers) viewer.binary(screen());
}, 1000).unref();

const live = (more) => ({ kind: 'session', session_id: null, app: 'shop-bot', cwd: '/home/ada/src/shop', pid: 4711, cols: 80, rows: 24, busy: true, turns: 3, since, last_at: since, cost_usd: 0.42, tokens: 91_200, viewers: viewers.size, writer: false, ...more });
const list = () => [
  live({ id: 'aaaa', agent: 'claude', terminal: true }),
  live({ id: 'bbbb', kind: 'backend', agent: 'claude', terminal: true, busy: false, app: 'search' }),
  live({ id: 'cccc', agent: 'codex', terminal: false, cost_usd: null }),
  live({ id: 'dddd', kind: 'backend', agent: 'claude', terminal: false, app: 'search', cost_usd: null, tokens: null }),
];

/** Answers what is about live terminals; `false` for all else. */
export function answer(request, response) {
  const { pathname } = new URL(request.url, 'http://here');
  if (pathname === '/admin/live') {
    response.writeHead(200, { 'content-type': 'application/json' }).end(JSON.stringify({ ok: true, live: list() }));
  } else if (pathname === '/admin/live/stream') {
    response.writeHead(200, { 'content-type': 'text/event-stream', 'cache-control': 'no-store' });
    const tell = () => {
      response.write(`event: live\ndata: ${JSON.stringify({ live: list() })}\n\n`);
      for (const id of ['aaaa', 'bbbb']) response.write(`event: screen\ndata: ${JSON.stringify({ id, cols: 80, rows: 24, ansi: screen() })}\n\n`);
    };
    tell();
    const timer = setInterval(tell, 1000);
    response.on('close', () => clearInterval(timer));
  } else if (pathname === '/admin/live/dddd/screen') {
    response.writeHead(404, { 'content-type': 'application/json' }).end(JSON.stringify({ ok: false, error: 'this process has no terminal to look at', code: 'not_found' }));
  } else if (/^\/admin\/live\/\w+\/screen$/.test(pathname)) {
    response.writeHead(200, { 'content-type': 'text/plain' }).end(lines.slice(-20).map((line) => line.replace(/\x1b\[[\d;]*m/g, '')).join('\n'));
  } else return false;
  return true;
}

function frame(opcode, payload) {
  const body = Buffer.from(payload);
  const head = body.length < 126 ? Buffer.from([0x80 | opcode, body.length]) : Buffer.from([0x80 | opcode, 126, body.length >> 8, body.length & 255]);
  return Buffer.concat([head, body]);
}

/** Takes a WebSocket over. */
export function attach(request, socket) {
  if (!/^\/admin\/live\/\w+\/attach/.test(request.url)) return false;
  const key = createHash('sha1').update(`${request.headers['sec-websocket-key']}258EAFA5-E914-47DA-95CA-C5AB0DC85B11`).digest('base64');
  socket.write(`HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\nConnection: Upgrade\r\nSec-WebSocket-Accept: ${key}\r\n\r\n`);
  const viewer = { binary: (text) => socket.write(frame(2, text)), text: (value) => socket.write(frame(1, JSON.stringify(value))) };
  viewers.add(viewer);
  viewer.text({ type: 'hello', id: 'aaaa', cols: 80, rows: 24, terminal: true, writer: 'nobody' });
  viewer.binary(screen());
  let rest = Buffer.alloc(0);
  socket.on('data', (bytes) => {
    rest = Buffer.concat([rest, bytes]);
    while (rest.length >= 6) {
      let length = rest[1] & 127;
      let at = 2;
      if (length === 126) {
        length = rest.readUInt16BE(2);
        at = 4;
      }
      if (rest.length < at + 4 + length) return;
      const mask = rest.subarray(at, at + 4);
      const body = Buffer.from(rest.subarray(at + 4, at + 4 + length)).map((byte, index) => byte ^ mask[index % 4]);
      const opcode = rest[0] & 15;
      rest = rest.subarray(at + 4 + length);
      if (opcode === 8) return socket.end();
      if (opcode === 1) {
        const message = JSON.parse(body.toString());
        if (message.type === 'resize') viewer.text({ type: 'size', cols: message.cols, rows: message.rows });
        if (message.type === 'take') viewer.text({ type: 'writer', writer: 'you' });
        if (message.type === 'release') viewer.text({ type: 'writer', writer: 'nobody' });
      }
      if (opcode === 2) {
        console.log('typed', JSON.stringify(body.toString()));
        viewer.text({ type: 'writer', writer: 'you' });
        typed = body.toString() === '\r' ? '' : typed + body.toString();
        for (const one of viewers) one.binary(screen());
      }
    }
  });
  const gone = () => viewers.delete(viewer);
  socket.on('close', gone);
  socket.on('error', gone);
  return true;
}

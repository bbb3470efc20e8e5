// Several screenshots as one picture that moves: an animated PNG, which browsers and GitHub show.
import { crc32 } from 'node:zlib';

const SIGNATURE = 8;

/** The chunks of a PNG. */
function chunks(png) {
  const found = [];
  for (let at = SIGNATURE; at < png.length; ) {
    const length = png.readUInt32BE(at);
    found.push({ type: png.toString('latin1', at + 4, at + 8), data: png.subarray(at + 8, at + 8 + length) });
    at += length + 12;
  }
  return found;
}

function chunk(type, ...parts) {
  const body = Buffer.concat([Buffer.from(type, 'latin1'), ...parts]);
  return Buffer.concat([numbers([4, body.length - 4]), body, numbers([4, crc32(body)])]);
}

/** Numbers, each with its length in bytes. */
function numbers(...pairs) {
  return Buffer.concat(pairs.map(([length, value]) => {
    const bytes = Buffer.alloc(length);
    bytes.writeUIntBE(value, 0, length);
    return bytes;
  }));
}

/** Shows screenshots of one size after each other, each for some milliseconds, again and again. */
export function animation(frames) {
  const all = frames.map(({ png }) => chunks(png));
  const header = all[0].find(({ type }) => type === 'IHDR').data;
  const [width, height] = [header.readUInt32BE(0), header.readUInt32BE(4)];
  const parts = [frames[0].png.subarray(0, SIGNATURE), chunk('IHDR', header), chunk('acTL', numbers([4, frames.length], [4, 0]))];
  let sequence = 0;
  const next = () => [4, sequence++];
  for (const [at, { ms }] of frames.entries()) {
    if (!all[at].find(({ type }) => type === 'IHDR').data.equals(header)) throw new Error(`screenshot ${at} has another size`);
    parts.push(chunk('fcTL', numbers(next(), [4, width], [4, height], [4, 0], [4, 0], [2, ms], [2, 1000], [1, 0], [1, 0])));
    for (const { data } of all[at].filter(({ type }) => type === 'IDAT')) {
      parts.push(at === 0 ? chunk('IDAT', data) : chunk('fdAT', numbers(next()), data));
    }
  }
  return Buffer.concat([...parts, chunk('IEND')]);
}

import { readdirSync } from 'node:fs';
import { defineConfig } from 'vite';

// The tests of the pure parts, each made into one module that Node's own runner takes.
const tests = readdirSync('test').filter((name) => name.endsWith('.test.ts'));

export default defineConfig({
  publicDir: false,
  build: {
    ssr: true,
    target: 'node20',
    outDir: 'node_modules/.unit',
    emptyOutDir: true,
    rolldownOptions: {
      input: Object.fromEntries(tests.map((name) => [name.replace(/\.ts$/, ''), `test/${name}`])),
      output: { entryFileNames: '[name].mjs' },
    },
  },
  ssr: { noExternal: true },
});

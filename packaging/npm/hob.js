#!/usr/bin/env node
// Runs the program from the npm package of this system. npm installs that package as an optional dependency.
'use strict';
const { spawn } = require('node:child_process');
const { constants } = require('node:os');

const name = `hob-${process.platform}-${process.arch}`;
let program;
try {
  program = require.resolve(`${name}/bin/hob`);
} catch {
  console.error(
    `hob: the package ${name} is not installed. Either Hob has no build for this system, or npm was run with ` +
      '--omit=optional; install again without it.',
  );
  process.exit(1);
}

const args = process.argv.slice(2);
if (process.execve) {
  // The program replaces this process, so no Node stays in memory.
  process.execve(program, [program, ...args], process.env);
} else {
  const child = spawn(program, args, { stdio: 'inherit' });
  // A terminal sends its signals to the program as well. Hob takes a repeated one as the first.
  for (const signal of ['SIGINT', 'SIGTERM', 'SIGHUP', 'SIGQUIT', 'SIGUSR1', 'SIGUSR2', 'SIGWINCH', 'SIGCONT']) {
    process.on(signal, () => child.kill(signal));
  }
  child.on('error', (error) => {
    console.error(`hob: cannot run ${program}: ${error.message}`);
    process.exit(1);
  });
  child.on('exit', (code, signal) => {
    if (signal === null) process.exit(code);
    // Ends by the signal that ended the program, so that the caller sees it.
    process.removeAllListeners(signal);
    process.kill(process.pid, signal);
    setTimeout(() => process.exit(128 + constants.signals[signal]), 100);
  });
}

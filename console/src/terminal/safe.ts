// An xterm.js that fits the content policy and on which an agent's bytes only draw.
import { Terminal, type ITerminalInitOnlyOptions, type ITerminalOptions } from '@xterm/xterm';

import { allowStyles } from './styles';

export const THEMES = {
  dark: {
    background: '#120e0b',
    foreground: '#e9dfd2',
    cursor: '#f08a44',
    cursorAccent: '#120e0b',
    selectionBackground: '#5a3d2699',
    black: '#2a221b',
    red: '#e2695a',
    green: '#9bb069',
    yellow: '#e3b062',
    blue: '#7fa3c4',
    magenta: '#c48bb0',
    cyan: '#7fb8ab',
    white: '#d8ccbc',
    brightBlack: '#7a6a5a',
    brightRed: '#f0897b',
    brightGreen: '#b6cc83',
    brightYellow: '#f2c886',
    brightBlue: '#a0c0dd',
    brightMagenta: '#dba8c8',
    brightCyan: '#9fd3c6',
    brightWhite: '#fbf4ea',
  },
  light: {
    background: '#fffdf9',
    foreground: '#33291f',
    cursor: '#b8501c',
    cursorAccent: '#fffdf9',
    selectionBackground: '#f0cda899',
    black: '#33291f',
    red: '#a8321f',
    green: '#55702a',
    yellow: '#8f6108',
    blue: '#2d5f8e',
    magenta: '#87406f',
    cyan: '#22706a',
    white: '#8b7d6e',
    brightBlack: '#6f6254',
    brightRed: '#c4452f',
    brightGreen: '#6a8a37',
    brightYellow: '#a9761a',
    brightBlue: '#3f78ab',
    brightMagenta: '#a05588',
    brightCyan: '#318882',
    brightWhite: '#4d4034',
  },
} as const;

export const FONT = 'ui-monospace, "SF Mono", "Cascadia Mono", "JetBrains Mono", Menlo, Consolas, "DejaVu Sans Mono", monospace';

export function safeTerminal(options: ITerminalOptions & ITerminalInitOnlyOptions): Terminal {
  allowStyles();
  const terminal = new Terminal({
    allowProposedApi: false,
    fontFamily: FONT,
    // A link in an agent's output opens nothing.
    linkHandler: { activate: () => undefined, allowNonHttpProtocols: false },
    windowOptions: {},
    logLevel: 'off',
    ...options,
  });
  deafen(terminal);
  return terminal;
}

/**
 * Takes every sequence that asks the terminal something. Hob's own terminal answers the agent; a second answer from
 * here would be typed into the agent as if a person had typed it. It also takes what would reach beyond the screen.
 */
function deafen(terminal: Terminal): void {
  const parser = terminal.parser;
  const taken = () => true;
  // Device attributes, status and cursor reports, modes, parameters, version, window reports, keyboard protocol.
  parser.registerCsiHandler({ final: 'c' }, taken);
  parser.registerCsiHandler({ prefix: '>', final: 'c' }, taken);
  parser.registerCsiHandler({ prefix: '=', final: 'c' }, taken);
  parser.registerCsiHandler({ final: 'n' }, taken);
  parser.registerCsiHandler({ prefix: '?', final: 'n' }, taken);
  parser.registerCsiHandler({ intermediates: '$', final: 'p' }, taken);
  parser.registerCsiHandler({ prefix: '?', intermediates: '$', final: 'p' }, taken);
  parser.registerCsiHandler({ final: 'x' }, taken);
  parser.registerCsiHandler({ prefix: '>', final: 'q' }, taken);
  parser.registerCsiHandler({ final: 't' }, taken);
  parser.registerCsiHandler({ prefix: '?', final: 'u' }, taken);
  parser.registerEscHandler({ final: 'Z' }, taken);
  parser.registerDcsHandler({ intermediates: '$', final: 'q' }, taken);
  parser.registerDcsHandler({ intermediates: '+', final: 'q' }, taken);
  // Titles, the working folder, hyperlinks, notifications, colours of the palette and questions about them, the clipboard.
  for (const code of [0, 1, 2, 4, 7, 8, 9, 10, 11, 12, 13, 14, 17, 19, 50, 52, 99, 133, 633, 777, 1337]) {
    parser.registerOscHandler(code, taken);
  }
  // Reports of focus and of mere movements of the mouse: looking is not touching.
  const quiet = new Set([1004, 9, 1000, 1002, 1003, 1005, 1006, 1015, 1016, 2031]);
  for (const final of ['h', 'l']) {
    parser.registerCsiHandler({ prefix: '?', final }, (params) => {
      const numbers = params.filter((value): value is number => typeof value === 'number');
      return numbers.length > 0 && numbers.every((value) => quiet.has(value));
    });
  }
}

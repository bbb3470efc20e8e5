import { render } from 'preact';

import './styles/base.css';
import './styles/shell.css';
import './styles/parts.css';
import './styles/pages.css';
import './styles/memory.css';
import './styles/session.css';
import './styles/questions.css';
import '@xterm/xterm/css/xterm.css';
import './theme';
import { App } from './app';

render(<App />, document.getElementById('app')!);

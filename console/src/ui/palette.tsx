// Go anywhere and do anything, by typing.
import { useEffect, useMemo, useRef, useState } from 'preact/hooks';

import { get } from '../api';
import { place, shortId } from '../format';
import { paletteOpen, helpOpen } from '../keys';
import { toggleNotifications } from '../notifications';
import { go } from '../router';
import type { Session } from '../shapes';
import { firstPrompts, titleFor } from '../titles';
import { toggle } from '../theme';
import { Dialog } from './dialog';
import { Icon } from './icons';

interface Command {
  icon: string;
  title: string;
  more?: string;
  /** Two sessions may have one title. */
  id?: string;
  act: () => void;
}

const FIXED: Command[] = [
  { icon: 'now', title: 'Now', more: 'what runs', act: () => go('/now') },
  { icon: 'sessions', title: 'Sessions', more: 'all of them', act: () => go('/sessions') },
  { icon: 'plus', title: 'New session', more: 'with an agent', act: () => go('/sessions?new=1') },
  { icon: 'memory', title: 'Memory', more: 'search what was said', act: () => go('/memory') },
  { icon: 'apps', title: 'Apps', more: 'tokens, limits, usage', act: () => go('/apps') },
  { icon: 'plus', title: 'New app', more: 'and its token', act: () => go('/apps?new=1') },
  { icon: 'health', title: 'Health', more: 'checks, settings, audit', act: () => go('/health') },
  { icon: 'sun', title: 'Switch colours', more: 'dark, light', act: toggle },
  { icon: 'notify', title: 'Notifications', more: 'on, off', act: () => void toggleNotifications() },
  { icon: 'help', title: 'Keys', more: 'help', act: () => { helpOpen.value = true; } },
];

export function Palette() {
  const [text, setText] = useState('');
  const [at, setAt] = useState(0);
  const [sessions, setSessions] = useState<Session[]>([]);
  const list = useRef<HTMLUListElement>(null);
  useEffect(() => {
    get<{ sessions: Session[] }>('/admin/sessions').then(
      (answer) => {
        const latest = answer.sessions.toReversed().slice(0, 200);
        setSessions(latest);
        void firstPrompts.want(latest);
      },
      () => undefined,
    );
  }, []);
  const prompts = firstPrompts.known.value;
  const shown = useMemo(() => {
    const words = text.toLowerCase().split(/\s+/).filter(Boolean);
    const matches = (command: Command) =>
      words.every((word) => `${command.title} ${command.more ?? ''}`.toLowerCase().includes(word));
    const open = sessions.map((session): Command => ({
      icon: 'sessions',
      title: titleFor(session) || `${session.agent} in ${place(session.cwd)}`,
      more: [session.agent, session.app, shortId(session.session_id), session.waiting ? 'waiting' : session.state].join(' · '),
      id: session.session_id,
      act: () => go(`/sessions/${session.session_id}`),
    }));
    // What begins with the words comes first, then what has them in its name.
    const rank = (command: Command) => {
      const at = command.title.toLowerCase().indexOf(words[0] ?? '');
      return at < 0 ? 2 : Math.min(at, 1);
    };
    const found = [...FIXED, ...open].filter(matches).toSorted((a, b) => rank(a) - rank(b)).slice(0, 12);
    if (text.trim()) {
      found.push({
        icon: 'search',
        title: `Search the memory for “${text.trim()}”`,
        act: () => go(`/memory?q=${encodeURIComponent(text.trim())}`),
      });
    }
    return found;
  }, [text, sessions, prompts]);
  const chosen = Math.min(at, shown.length - 1);
  const close = () => {
    paletteOpen.value = false;
  };
  const run = (command: Command | undefined) => {
    if (!command) return;
    close();
    command.act();
  };
  const onKeyDown = (event: KeyboardEvent) => {
    if (event.key === 'ArrowDown' || event.key === 'ArrowUp') {
      event.preventDefault();
      const next = (chosen + (event.key === 'ArrowDown' ? 1 : shown.length - 1)) % Math.max(1, shown.length);
      setAt(next);
      list.current?.children[next]?.scrollIntoView({ block: 'nearest' });
    } else if (event.key === 'Enter') {
      event.preventDefault();
      run(shown[chosen]);
    }
  };
  return (
    <Dialog title="Find" onClose={close} bare>
      <div class="palette">
        <label class="palette-field">
          <Icon name="search" />
          <input
            autofocus
            type="text"
            role="combobox"
            aria-expanded="true"
            aria-controls="palette-list"
            aria-activedescendant={shown.length ? `palette-${chosen}` : undefined}
            aria-label="Go to a page, a session, or search the memory"
            placeholder="A page, a session, an action, or a memory search…"
            value={text}
            spellcheck={false}
            onInput={(event) => {
              setText(event.currentTarget.value);
              setAt(0);
            }}
            onKeyDown={onKeyDown}
          />
        </label>
        <ul id="palette-list" role="listbox" aria-label="Found" ref={list}>
          {shown.map((command, index) => (
            <li
              key={command.id ?? command.title}
              id={`palette-${index}`}
              role="option"
              aria-selected={index === chosen}
              class={index === chosen ? 'chosen' : ''}
              onMouseMove={() => setAt(index)}
              onClick={() => run(command)}
            >
              <Icon name={command.icon} />
              <span>{command.title}</span>
              <small>{command.more}</small>
            </li>
          ))}
        </ul>
      </div>
    </Dialog>
  );
}

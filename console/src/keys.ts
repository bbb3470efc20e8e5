// The keyboard, anywhere on the page.
import { signal } from '@preact/signals';

import { go } from './router';

export const paletteOpen = signal(false);
export const helpOpen = signal(false);

const PLACES: Record<string, string> = { n: '/now', s: '/sessions', m: '/memory', a: '/apps', h: '/health' };

let waitingForPlace = 0;

function isTyping(target: EventTarget | null): boolean {
  if (!(target instanceof HTMLElement)) return false;
  return target.isContentEditable || /^(INPUT|TEXTAREA|SELECT)$/.test(target.tagName);
}

export function onKey(event: KeyboardEvent): void {
  if ((event.ctrlKey || event.metaKey) && event.key.toLowerCase() === 'k') {
    if (insideTerminal(event.target) && !event.metaKey) return;
    event.preventDefault();
    paletteOpen.value = !paletteOpen.value;
    return;
  }
  if (event.key === 'Escape' && !document.querySelector('dialog[open]') && isTyping(event.target) && !insideTerminal(event.target)) {
    (event.target as HTMLElement).blur();
    return;
  }
  if (event.key === 'Escape' && !isTyping(event.target) && !document.querySelector('dialog[open]')) {
    document.querySelector<HTMLElement>('[data-escape]')?.click();
    return;
  }
  if (event.defaultPrevented || event.ctrlKey || event.metaKey || event.altKey) return;
  if (isTyping(event.target) || document.querySelector('dialog[open]')) return;
  if (waitingForPlace && Date.now() - waitingForPlace < 1200) {
    waitingForPlace = 0;
    const place = PLACES[event.key];
    if (place) {
      event.preventDefault();
      go(place);
      return;
    }
  }
  switch (event.key) {
    case 'g':
      waitingForPlace = Date.now();
      return;
    case '/': {
      event.preventDefault();
      const field = document.querySelector<HTMLInputElement>('[data-search]');
      if (field) {
        field.focus();
        field.select();
      } else paletteOpen.value = true;
      return;
    }
    case '?':
      event.preventDefault();
      helpOpen.value = true;
      return;
    case 'j':
    case 'k':
      event.preventDefault();
      step(event.key === 'j' ? 1 : -1);
      return;
    default:
  }
}

const insideTerminal = (target: EventTarget | null) =>
  target instanceof Element && target.closest('.xterm') !== null;

/** To the next or the former thing of a list. */
function step(by: number): void {
  const items = [...document.querySelectorAll<HTMLElement>('[data-item]')];
  if (!items.length) return;
  const active = document.activeElement;
  const at = items.findIndex((item) => item === active || item.contains(active));
  const next = items[at < 0 ? (by > 0 ? 0 : items.length - 1) : Math.min(items.length - 1, Math.max(0, at + by))];
  next?.focus();
  next?.scrollIntoView({ block: 'nearest' });
}

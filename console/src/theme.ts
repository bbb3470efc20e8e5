// Dark and light: the system's choice unless a person has chosen.
import { effect, signal } from '@preact/signals';

export type Choice = 'system' | 'dark' | 'light';
const KEY = 'hob.theme';

function stored(): Choice {
  const value = localStorage.getItem(KEY);
  return value === 'dark' || value === 'light' ? value : 'system';
}

const system = window.matchMedia('(prefers-color-scheme: dark)');
const systemDark = signal(system.matches);
system.addEventListener('change', (event) => {
  systemDark.value = event.matches;
});

export const choice = signal<Choice>(stored());
export const dark = signal(true);

effect(() => {
  dark.value = choice.value === 'system' ? systemDark.value : choice.value === 'dark';
  document.documentElement.dataset['theme'] = dark.value ? 'dark' : 'light';
});

export function choose(next: Choice): void {
  choice.value = next;
  if (next === 'system') localStorage.removeItem(KEY);
  else localStorage.setItem(KEY, next);
}

/** From what is seen to the other one. */
export function toggle(): void {
  choose(dark.value ? 'light' : 'dark');
}

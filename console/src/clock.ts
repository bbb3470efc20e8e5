// The current time, updated once a second for everything that shows an age.
import { signal } from '@preact/signals';

export const now = signal(Date.now());

window.setInterval(() => {
  if (!document.hidden) now.value = Date.now();
}, 1000);

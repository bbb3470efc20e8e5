// Ticks for a page in the background, whose own timers the browser slows down to one tick a minute.
setInterval(() => postMessage(null), 3_000);

export {};

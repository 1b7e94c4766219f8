// Frames of /v1/live, for as long as somebody on this page looks: one stream for all views, none
// while the tab is hidden.
import { events, onKey, request } from './api.js';

const watchers = new Set();
let abort = null;

async function run() {
  const own = (abort = new AbortController());
  let pause = 500;
  while (!own.signal.aborted) {
    try {
      const response = await request('GET', '/v1/live', undefined, { signal: own.signal });
      for await (const data of events(response)) {
        if (own.signal.aborted) break;
        pause = 500;
        const frame = JSON.parse(data);
        if (frame.object !== 'live') break;  // the key is gone; the next request says so
        for (const watcher of watchers) watcher.frame(frame);
      }
    } catch (error) {
      if (own.signal.aborted) return;
      for (const watcher of watchers) watcher.problem?.(error);
      if (error.status === 401) { stop(); return; }
    }
    await new Promise((go) => setTimeout(go, pause));
    pause = Math.min(10_000, pause * 2);
  }
}

function stop() {
  abort?.abort();
  abort = null;
}

function settle() {
  const wanted = watchers.size > 0 && !document.hidden;
  if (wanted && abort === null) run();
  if (!wanted) stop();
}

document.addEventListener('visibilitychange', settle);
onKey(() => { stop(); settle(); });

// -> a function that ends it
export function watch(frame, problem) {
  const watcher = { frame, problem };
  watchers.add(watcher);
  settle();
  return () => { watchers.delete(watcher); settle(); };
}

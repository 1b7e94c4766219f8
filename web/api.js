// The server, as the page talks to it: JSON, and streams of events read by fetch. The key lives in
// this module's memory and leaves it in a header alone.
import { breathe } from './dom.js';

let key = '';
const listeners = new Set();

export const hasKey = () => key !== '';
export function useKey(text) {
  key = text;
  for (const listener of listeners) listener();
}
export const onKey = (listener) => { listeners.add(listener); return () => listeners.delete(listener); };

let askForKey = () => {};
export const onKeyWanted = (ask) => { askForKey = ask; };

export class ApiError extends Error {
  constructor(status, body) {
    const error = body?.error ?? {};
    super(error.message || `The server answered ${status}.`);
    this.status = status;
    this.code = error.code ?? '';
    this.param = error.param ?? '';
  }
}

function headers(more) {
  return { ...(key ? { Authorization: `Bearer ${key}` } : {}), ...more };
}

async function refused(response) {
  let body = null;
  try {
    body = await response.json();
  } catch { /* no JSON: the status says enough */ }
  const error = new ApiError(response.status, body);
  if (response.status === 401) askForKey(hasKey() ? 'The key is not valid, or no longer.' : '');
  return error;
}

// -> the response, or throws an ApiError.
export async function request(method, path, body, { signal, raw, more } = {}) {
  const isText = body !== undefined && !raw;
  const response = await fetch(path, {
    method, signal, cache: 'no-store', credentials: 'omit',
    headers: headers({ ...(isText ? { 'Content-Type': 'application/json' } : {}), ...more }),
    body: isText ? JSON.stringify(body) : body,
  });
  if (!response.ok) throw await refused(response);
  return response;
}

export const getJson = async (path, options) => (await request('GET', path, undefined, options)).json();
export const postJson = async (path, body, options) => (await request('POST', path, body, options)).json();
export const remove = async (path) => (await request('DELETE', path)).json();

const kSliceMs = 8;  // of work, between two breaths

// The data of each event of a stream, as text. Takes breaths, however much arrives at once.
export async function* events(response) {
  const reader = response.body.pipeThrough(new TextDecoderStream()).getReader();
  let rest = '';
  let began = performance.now();
  try {
    while (true) {
      const { value, done } = await reader.read();
      if (done) return;
      rest += value;
      let from = 0;
      for (let end = rest.indexOf('\n\n', from); end >= 0; end = rest.indexOf('\n\n', from)) {
        const frame = rest.slice(from, end);
        from = end + 2;
        const data = frame.split('\n').filter((line) => line.startsWith('data: ')).map((line) => line.slice(6));
        if (data.length > 0) yield data.join('\n');
        if (performance.now() - began > kSliceMs) {
          await breathe();
          began = performance.now();
        }
      }
      rest = rest.slice(from);
      began = performance.now();
    }
  } finally {
    reader.cancel().catch(() => {});
  }
}

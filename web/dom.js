// Nodes, numbers and small talk. Everything on the page is made of nodes: no text becomes HTML.

export function h(name, attributes, ...children) {
  const node = document.createElement(name);
  for (const [key, value] of Object.entries(attributes ?? {})) {
    if (value === undefined || value === null || value === false) continue;
    if (key.startsWith('on')) node.addEventListener(key.slice(2), value);
    else if (key === 'class') node.className = value;
    else if (key === 'value') node.value = value;
    else node.setAttribute(key, value === true ? '' : String(value));
  }
  add(node, children);
  return node;
}

function add(node, children) {
  for (const child of children.flat(Infinity)) {
    if (child === undefined || child === null || child === false) continue;
    node.append(child);
  }
}

const kSvg = 'http://www.w3.org/2000/svg';
export function svg(name, attributes, ...children) {
  const node = document.createElementNS(kSvg, name);
  for (const [key, value] of Object.entries(attributes ?? {})) node.setAttribute(key, value);
  add(node, children);
  return node;
}

export function show(parent, ...children) {
  parent.replaceChildren();
  add(parent, children);
}

export const count = (n) => Math.round(n ?? 0).toLocaleString('en-US');

export function bytes(n) {
  if (!n) return '0 B';
  const units = ['B', 'KiB', 'MiB', 'GiB', 'TiB'];
  const at = Math.min(units.length - 1, Math.floor(Math.log2(n) / 10));
  const scaled = n / 2 ** (10 * at);
  return `${scaled >= 100 || at === 0 ? Math.round(scaled) : scaled.toFixed(1)} ${units[at]}`;
}

export function duration(ms) {
  if (ms === undefined || ms === null || Number.isNaN(ms)) return '–';
  if (ms < 1) return `${(ms * 1000).toFixed(0)} µs`;
  if (ms < 1000) return `${ms < 10 ? ms.toFixed(1) : Math.round(ms)} ms`;
  if (ms < 90_000) return `${(ms / 1000).toFixed(ms < 10_000 ? 2 : 1)} s`;
  return `${Math.floor(ms / 60_000)} min ${Math.round((ms % 60_000) / 1000)} s`;
}

export function ago(ms) {
  const s = Math.max(0, (Date.now() - ms) / 1000);
  if (s < 5) return 'just now';
  if (s < 90) return `${Math.round(s)} s ago`;
  if (s < 5400) return `${Math.round(s / 60)} min ago`;
  if (s < 129_600) return `${Math.round(s / 3600)} h ago`;
  return new Date(ms).toISOString().slice(0, 10);
}

// Waits for a moment in which the browser can paint and take input.
export const breathe = () =>
  globalThis.scheduler?.yield ? globalThis.scheduler.yield() : new Promise((go) => setTimeout(go, 0));

export async function copy(text, button) {
  try {
    await navigator.clipboard.writeText(text);
  } catch {  // not a secure context: by way of a selection
    const box = h('textarea', { value: text, class: 'away', 'aria-hidden': 'true' });
    document.body.append(box);
    box.select();
    document.execCommand('copy');
    box.remove();
  }
  if (!button) return;
  const before = button.textContent;
  button.textContent = 'Copied';
  setTimeout(() => { button.textContent = before; }, 1200);
}

export function confirmed(question) {
  return new Promise((resolve) => {
    const dialog = h('dialog', { 'aria-label': question },
      h('form', { method: 'dialog' }, h('p', null, question),
        h('div', { class: 'row end' }, h('button', { value: 'no', class: 'quiet' }, 'Cancel'),
          h('button', { value: 'yes', class: 'primary' }, 'Yes'))));
    dialog.addEventListener('close', () => { resolve(dialog.returnValue === 'yes'); dialog.remove(); });
    document.body.append(dialog);
    dialog.showModal();
  });
}

const tip = document.getElementById('tip');
export function showTip(at, ...children) {
  show(tip, ...children);
  tip.hidden = false;
  const box = at.getBoundingClientRect ? at.getBoundingClientRect() : at;
  const left = Math.min(Math.max(8, box.left), innerWidth - tip.offsetWidth - 8);
  const above = box.top - tip.offsetHeight - 6;
  tip.style.left = `${left}px`;
  tip.style.top = `${above > 4 ? above : box.bottom + 6}px`;
}
export function hideTip() {
  tip.hidden = true;
}

export function title(text, note, ...more) {
  return h('div', { class: 'title' }, h('h1', null, text), note && h('p', { class: 'muted' }, note),
    h('div', { class: 'title-more' }, more));
}

export function problem(error) {
  return h('p', { class: 'problem', role: 'alert' }, error.message ?? String(error));
}

// Requests: those that run and wait, and those that have ended with what took their time.
import { getJson, onKey, remove } from './api.js';
import { ago, count, duration, h, problem, show, title } from './dom.js';

const kParts = [['queue_ms', 'queue', 'd'], ['prefill_ms', 'prefill', 'b'], ['decode_ms', 'decode', ''], ['deliver_ms', 'prepare and deliver', 'c']];

function timeline(request, longest) {
  const known = request.queue_ms + request.prefill_ms + request.decode_ms;
  const parts = { ...request, deliver_ms: Math.max(0, request.total_ms - known) };
  const bar = h('div', { class: 'bar', role: 'img', title: `prefill in ${request.prefill_chunks} chunk${request.prefill_chunks === 1 ? '' : 's'}`,
    'aria-label': kParts.map(([field, name]) => `${name} ${duration(parts[field])}`).join(', ') },
  kParts.map(([field, name, kind]) => {
    const piece = h('i', { class: kind, title: `${name} ${duration(parts[field])}` });
    piece.style.width = `${(100 * parts[field]) / longest}%`;
    return piece;
  }));
  return h('div', null, bar, h('small', { class: 'muted num' },
    `queue ${duration(request.queue_ms)} · prefill ${duration(request.prefill_ms)} (${request.prefill_chunks} chunk${request.prefill_chunks === 1 ? '' : 's'}) · decode ${duration(request.decode_ms)} · deliver ${duration(parts.deliver_ms)}`));
}

const shortId = (id) => h('code', { title: id }, id.length > 20 ? `${id.slice(0, 17)}…` : id);

function liveRow(request, cancel) {
  const choice = request.choices[0];
  return h('tr', null, h('td', null, shortId(request.id), h('br'), h('small', { class: 'muted' }, request.model)),
    h('td', null, h('span', { class: `pill ${choice?.state === 'running' ? 'hot' : ''}` }, choice?.state ?? 'preparing'), ' ', h('span', { class: 'pill' }, request.class)),
    h('td', null, choice?.explanation.replace(`${choice.state}: `, '') ?? 'The model is loaded, or the prompt is made.'),
    h('td', { class: 'num' }, choice ? `${count(choice.prompt_tokens)} + ${count(choice.generated_tokens)}` : ''),
    h('td', { class: 'num' }, duration(request.age_ms)),
    h('td', null, h('button', { class: 'tiny danger', onclick: () => cancel(request.id) }, 'Cancel')));
}

function endedRow(request, longest) {
  const bad = !['stop', 'length', 'tool_calls'].includes(request.finish_reason);
  return h('tr', null, h('td', null, shortId(request.id), h('br'), h('small', { class: 'muted' }, request.key ? `${request.key} · ` : '', request.route)),
    h('td', null, h('span', { class: `pill ${bad ? 'bad' : 'good'}` }, request.finish_reason), request.status === 200 ? '' : ` ${request.status}`),
    h('td', { class: 'grow' }, timeline(request, longest)),
    h('td', { class: 'num' }, `${count(request.prompt_tokens)} + ${count(request.output_tokens)}`, h('br'), h('small', { class: 'muted' }, request.cached_tokens ? `${count(request.cached_tokens)} cached` : '')),
    h('td', { class: 'num' }, duration(request.total_ms), h('br'), h('small', { class: 'muted' }, ago(request.ended_at_ms))));
}

export function open(main) {
  const live = h('div');
  const ended = h('div');
  const trouble = h('div');
  const heads = (...names) => h('thead', null, h('tr', null, names.map((name) => h('th', { class: name.startsWith('#') ? 'num' : '', scope: 'col' }, name.replace('#', '')))));
  const cancel = async (id) => { try { await remove(`/v1/requests/${encodeURIComponent(id)}`); } catch (error) { if (error.status !== 404) show(trouble, problem(error)); } look(); };
  async function look() {
    try {
      const page = await getJson('/v1/requests?limit=60');
      show(trouble, page.scope === 'totals' && h('p', { class: 'muted' }, 'This server is open to everyone, so requests are not shown.'));
      show(live, page.data.length === 0 ? h('p', { class: 'note' }, 'Nothing runs and nothing waits.')
        : h('div', { class: 'table' }, h('table', { class: 'wide' }, heads('Request', 'State', 'Why', '#Tokens in + out', '#Age', 'End it'), h('tbody', null, page.data.map((request) => liveRow(request, cancel))))));
      const longest = Math.max(1, ...page.recent.map((request) => request.total_ms));
      show(ended, page.recent.length === 0 ? h('p', { class: 'note' }, 'Nothing has ended yet.')
        : h('div', { class: 'table' }, h('table', { class: 'wide' }, heads('Request', 'End', 'Time', '#Tokens in + out', '#Total'), h('tbody', null, page.recent.map((request) => endedRow(request, longest))))));
    } catch (error) {
      show(trouble, problem(error));
    }
  }
  show(main, h('div', { class: 'page' }, title('Requests', null,
    h('div', { class: 'legend' }, kParts.map(([, name, kind]) => h('span', null, swatch(kind), name)))), trouble,
  h('section', { class: 'card' }, h('h2', null, 'Now'), live), h('section', { class: 'card' }, h('h2', null, 'Lately'), ended)));
  const timer = setInterval(() => { if (!document.hidden && !live.contains(document.activeElement)) look(); }, 1000);
  const end = onKey(look);
  look();
  return () => { clearInterval(timer); end(); };
}

function swatch(kind) {
  const node = h('i');
  node.style.background = `var(${{ d: '--cached', b: '--line-2', '': '--held', c: '--line-3' }[kind]})`;
  return node;
}

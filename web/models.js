// Models: what is loaded, what it takes, and who holds it; loading and unloading for admins.
import { hasKey, postJson } from './api.js';
import { bytes, count, duration, h, problem, show, title } from './dom.js';
import { watch } from './feed.js';

const kParts = [['weight_bytes', 'weights', ''], ['kv_bytes', 'KV blocks', 'b'], ['rest_bytes', 'workspace and forms', 'c']];

export function open(main) {
  const list = h('div', { class: 'cards' });
  const trouble = h('div');
  const since = new Map();  // when a load was seen to begin
  let signature = '';
  const act = async (what, model) => {
    show(trouble);
    try {
      await postJson(`/admin/models/${what}`, { model });
    } catch (error) {
      show(trouble, problem(error));
    }
    signature = '';
  };
  const card = (model, isAdmin) => {
    const rest = (model.memory_bytes ?? 0) - (model.weight_bytes ?? 0) - (model.kv_bytes ?? 0);
    const sizes = { ...model, rest_bytes: rest };
    const bar = h('div', { class: 'bar' }, kParts.map(([field, name, kind]) => {
      const piece = h('i', { class: kind, title: `${name} ${bytes(sizes[field])}` });
      piece.style.width = `${(100 * sizes[field]) / model.memory_bytes}%`;
      return piece;
    }));
    const busy = model.state === 'loading' || model.state === 'unloading';
    return h('section', { class: 'card' },
      h('div', { class: 'row' }, h('h2', { class: 'grow' }, model.id), h('span', { class: `pill ${model.state === 'ready' ? 'good' : busy ? 'hot' : ''}` }, model.state), model.failed && h('span', { class: 'pill bad' }, 'the last load failed')),
      busy && [progress(model), h('p', { class: 'muted num' }, `${model.state} for ${duration(Date.now() - since.get(model.id))}${model.loaded_share ? ` · ${Math.floor(100 * model.loaded_share)} % of its weights` : ''}`)],
      model.engine && [bar, h('div', { class: 'legend' }, kParts.map(([field, name, kind]) => h('span', null, swatch(kind), `${name} ${bytes(sizes[field])}`))),
        h('p', null, `${bytes(model.memory_bytes)} in all · up to ${count(model.max_request_tokens)} tokens a request · ${model.max_batch} at a time · ${model.leases} lease${model.leases === 1 ? '' : 's'}${model.pinned ? ' · stays loaded' : ''}`)],
      h('div', { class: 'row' },
        model.state === 'unloaded' && h('button', { disabled: !isAdmin, onclick: () => act('load', model.id) }, 'Load'),
        model.state === 'ready' && h('button', { disabled: !isAdmin, onclick: () => act('unload', model.id) }, 'Unload'),
        !isAdmin && h('small', { class: 'muted' }, hasKey() ? 'Loading and unloading need an admin’s key.' : 'Loading and unloading need a key with the admin right.')));
  };
  show(main, h('div', { class: 'page' }, title('Models', 'A model that is asked for is loaded by itself.'), trouble, list));
  return watch((frame) => {
    for (const model of frame.models) {
      if (model.state !== 'loading' && model.state !== 'unloading') since.delete(model.id);
      else if (!since.has(model.id)) since.set(model.id, Date.now());
    }
    const now = JSON.stringify(frame.models.map((m) => [m.id, m.state, m.leases, m.failed, m.memory_bytes, m.loaded_share, since.has(m.id) && Math.floor(Date.now() / 500)]));
    if (now === signature) return;
    signature = now;
    show(list, frame.models.map((model) => card(model, frame.admin)));
  }, (error) => show(trouble, problem(error)));
}

// How far a load is. While its files are opened, or another load is before it, nobody knows.
function progress(model) {
  const share = model.loaded_share;
  const fill = h('i');
  if (share) fill.style.width = `${100 * share}%`;
  return h('div', { class: share ? 'bar' : 'bar busy', role: 'progressbar', 'aria-label': `${model.state} ${model.id}`, ...(share ? { 'aria-valuemin': 0, 'aria-valuemax': 100, 'aria-valuenow': Math.floor(100 * share) } : {}) }, fill);
}

function swatch(kind) {
  const node = h('i');
  node.style.background = `var(${{ b: '--line-2', '': '--held', c: '--line-3' }[kind]})`;
  return node;
}

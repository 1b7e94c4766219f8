// Keys: made, limited, rotated and revoked by an admin, with what each has used.
import { getJson, hasKey, onKey, postJson, remove } from './api.js';
import { ago, confirmed, copy, count, h, problem, show, title } from './dom.js';

const whoMay = () => h('p', { class: 'note' }, 'This view needs a key with the admin right. ', h('code', null, 'skein keys add --name NAME --admin'), ' makes one; the button Key… takes it.');

function usageBar(key, most) {
  const { prompt_tokens: prompt, cached_tokens: cached, output_tokens: output, requests } = key.usage;
  const bar = h('div', { class: 'bar', role: 'img', 'aria-label': `${count(prompt)} prompt tokens, ${count(output)} generated` },
    [[prompt - cached, 'b'], [cached, 'd'], [output, '']].map(([n, kind]) => { const piece = h('i', { class: kind }); piece.style.width = `${(100 * n) / most}%`; return piece; }));
  return h('div', null, bar, h('small', { class: 'muted num' }, `${count(requests)} requests · ${count(prompt)} in (${count(cached)} cached) · ${count(output)} out`));
}

export function open(main) {
  const trouble = h('div');
  const list = h('div');
  const fresh = h('div');
  const act = async (work) => { show(trouble); try { await work(); } catch (error) { show(trouble, error.status === 403 ? whoMay() : problem(error)); } };
  const showSecret = (key, what) => {
    const button = h('button', { onclick: () => copy(key.key, button) }, 'Copy');
    show(fresh, h('section', { class: 'card', role: 'status' }, h('h2', null, what), h('div', { class: 'secret' }, key.key), h('div', { class: 'row' }, button, h('span', { class: 'muted' }, 'It is shown this once.'))));
  };
  const row = (key, most) => h('section', { class: 'card' },
    h('div', { class: 'row' }, h('h2', { class: 'grow' }, key.name), key.admin && h('span', { class: 'pill hot' }, 'admin'), h('span', { class: 'pill' }, key.tier), key.revoked_at && h('span', { class: 'pill bad' }, `revoked ${ago(key.revoked_at * 1000)}`)),
    usageBar(key, most),
    h('p', { class: 'muted' }, `${key.rpm ? `${count(key.rpm)} requests` : 'any number of requests'} and ${key.tokens_per_minute ? `${count(key.tokens_per_minute)} tokens` : 'of tokens'} a minute · ${key.models.length ? key.models.join(', ') : 'all models'} · made ${ago(key.created_at * 1000)}`),
    !key.revoked_at && h('div', { class: 'row end' },
      h('button', { onclick: () => act(async () => { if (!await confirmed(`Give ${key.name} a new secret? The old one ends at once.`)) return; showSecret(await postJson(`/admin/keys/${encodeURIComponent(key.id)}/rotate`, {}), `The new secret of ${key.name}`); look(); }) }, 'Rotate'),
      h('button', { class: 'danger', onclick: () => act(async () => { if (!await confirmed(`Revoke ${key.name}? What it asks from now on is refused.`)) return; await remove(`/admin/keys/${encodeURIComponent(key.id)}`); look(); }) }, 'Revoke')));
  const field = (name, label, attributes) => h('label', null, label, h('input', { name, ...attributes }));
  const form = h('form', { class: 'card', onsubmit: (event) => {
    event.preventDefault();
    const data = new FormData(form);
    act(async () => {
      const body = { name: data.get('name'), tier: data.get('tier'), admin: data.get('admin') === 'on' };
      for (const name of ['rpm', 'tokens_per_minute']) if (data.get(name)) body[name] = Number(data.get(name));
      if (data.get('models').trim()) body.models = data.get('models').split(',').map((name) => name.trim()).filter(Boolean);
      showSecret(await postJson('/admin/keys', body), `The key of ${body.name}`);
      form.reset();
      look();
    });
  } }, h('h2', null, 'A new key'), h('div', { class: 'fields' }, field('name', 'Name', { required: true, maxlength: 256 }),
    h('label', null, 'Class', h('select', { name: 'tier' }, ['normal', 'high', 'low'].map((tier) => h('option', null, tier)))),
    field('rpm', 'Requests a minute', { type: 'number', min: 1, placeholder: 'no limit' }), field('tokens_per_minute', 'Tokens a minute', { type: 'number', min: 1, placeholder: 'no limit' }), field('models', 'Models', { placeholder: 'all' })),
  h('div', { class: 'row end' }, h('label', { class: 'grow' }, h('input', { type: 'checkbox', name: 'admin' }), 'Admin right'), h('button', { class: 'primary' }, 'Make')));
  form.hidden = true;
  const look = () => act(async () => {
    if (!hasKey()) return show(trouble, whoMay());
    const { data } = await getJson('/admin/keys');
    form.hidden = false;
    const most = Math.max(1, ...data.map((key) => key.usage.prompt_tokens + key.usage.output_tokens));
    show(list, data.sort((a, b) => Boolean(a.revoked_at) - Boolean(b.revoked_at) || b.created_at - a.created_at).map((key) => row(key, most)));
  });
  show(main, h('div', { class: 'page' }, title('Keys', 'Who may use this server, how much of it, and what they have used.'), trouble, fresh, form, list));
  const end = onKey(look);
  look();
  return () => { end(); show(fresh); };
}

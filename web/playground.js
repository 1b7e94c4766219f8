// Playground for forms: a schema, what of it is enforced, and an answer that fits it.
import { events, getJson, onKey, request } from './api.js';
import { duration, h, problem, show, title } from './dom.js';

const kExamples = {
  city: { type: 'object', properties: { city: { type: 'string', maxLength: 20 }, country: { type: 'string', maxLength: 20 }, population: { type: 'integer', minimum: 0, maximum: 40000000 }, coastal: { type: 'boolean' } }, required: ['city', 'country', 'population', 'coastal'] },
  ticket: { type: 'object', properties: { title: { type: 'string', maxLength: 60 }, severity: { enum: ['low', 'medium', 'high'] }, tags: { type: 'array', items: { type: 'string', maxLength: 12 }, minItems: 1, maxItems: 3 }, due: { type: 'string', format: 'date' } }, required: ['title', 'severity', 'tags', 'due'] },
  relaxed: { type: 'object', properties: { numbers: { type: 'array', items: { type: 'integer' }, contains: { const: 7 }, maxItems: 5 } }, required: ['numbers'] },
};
const kPrompts = { city: 'Describe Lisbon.', ticket: 'The login page crashes on phones since this morning.', relaxed: 'Some numbers, please.' };
const kCheckAfterMs = 500;

export function open(main) {
  const schema = h('textarea', { class: 'code-box', rows: 18, spellcheck: 'false', 'aria-label': 'JSON Schema', value: JSON.stringify(kExamples.city, null, 2) });
  const prompt = h('textarea', { rows: 2, 'aria-label': 'Message', value: kPrompts.city });
  const verdict = h('div', { role: 'status' });
  const out = h('pre', { class: 'out', tabindex: '0', role: 'region', 'aria-label': 'Answer' });
  const meta = h('small', { class: 'muted' });
  const model = h('select', { 'aria-label': 'Model' });
  const strict = h('input', { type: 'checkbox', onchange: () => soon() });
  const run = h('button', { class: 'primary', onclick: () => (running ? running.abort() : answer()) }, 'Answer');
  let running = null;
  let checking = null;
  let timer = 0;

  const body = (more) => ({ model: model.value, messages: [{ role: 'user', content: prompt.value }],
    response_format: { type: 'json_schema', json_schema: { name: 'form', schema: JSON.parse(schema.value), strict: strict.checked } }, ...more });
  const relaxedOf = (response) => (response.headers.get('x-skein-relaxed') ?? '').split(',').map((text) => text.trim()).filter(Boolean);
  const tell = (relaxed) => show(verdict, relaxed.length === 0 ? h('span', { class: 'pill good' }, 'all of it is enforced')
    : [h('span', { class: 'pill hot' }, 'relaxed'), ' ', relaxed.map((pointer) => [h('code', null, pointer), ' '])]);

  // One token is enough to learn what the server makes of the schema.
  async function check() {
    checking?.abort();
    const own = (checking = new AbortController());
    try {
      const response = await request('POST', '/v1/chat/completions', body({ max_tokens: 1 }), { signal: own.signal });
      await response.json();
      tell(relaxedOf(response));
    } catch (error) {
      if (!own.signal.aborted) show(verdict, problem(error));
    }
  }
  function soon() {
    clearTimeout(timer);
    try {
      JSON.parse(schema.value);
    } catch (error) {
      return show(verdict, h('p', { class: 'problem' }, `Not JSON yet: ${error.message}`));
    }
    timer = setTimeout(check, kCheckAfterMs);
  }
  async function answer() {
    show(out);
    running = new AbortController();
    run.textContent = 'Stop';
    const began = performance.now();
    try {
      const response = await request('POST', '/v1/chat/completions', body({ stream: true, max_tokens: 400 }), { signal: running.signal });
      let text = '';
      let end = '';
      for await (const data of events(response)) {
        if (data === '[DONE]') break;
        const chunk = JSON.parse(data);
        if (chunk.error) throw new Error(chunk.error.message);
        const choice = chunk.choices?.[0];
        text += choice?.delta?.content ?? '';
        end = choice?.finish_reason ?? end;
        out.textContent = text;
      }
      try {
        out.textContent = JSON.stringify(JSON.parse(text), null, 2);
        meta.textContent = `whole, in ${duration(performance.now() - began)}`;
      } catch {
        meta.textContent = end === 'length' ? 'cut off by the limit of tokens' : 'not whole';
      }
    } catch (error) {
      if (!running.signal.aborted) show(out, problem(error));
    }
    running = null;
    run.textContent = 'Answer';
  }
  const pick = (name) => { schema.value = JSON.stringify(kExamples[name], null, 2); prompt.value = kPrompts[name]; soon(); };
  const loadModels = async () => {
    try {
      const { data } = await getJson('/v1/models');
      show(model, data.map(({ id }) => h('option', null, id)));
      soon();
    } catch (error) {
      show(verdict, problem(error));
    }
  };
  schema.addEventListener('input', soon);
  show(main, h('div', { class: 'page' }, title('Playground', 'A schema binds what a model can say, token by token.', h('div', null, model)),
    h('div', { class: 'split' },
      h('section', { class: 'card' }, h('div', { class: 'row' }, h('h2', { class: 'grow' }, 'Schema'), Object.keys(kExamples).map((name) => h('button', { class: 'tiny', onclick: () => pick(name) }, name))), schema,
        h('div', { class: 'row' }, h('label', { class: 'grow' }, strict, 'Strict: refuse what cannot be enforced')), verdict),
      h('section', { class: 'card' }, h('h2', null, 'Answer'), h('label', null, 'Message', prompt), h('div', { class: 'row end' }, meta, run), out))));
  loadModels();
  const end = onKey(loadModels);
  return () => { clearTimeout(timer); checking?.abort(); running?.abort(); end(); };
}

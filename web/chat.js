// Chat: a conversation with a model, streamed.
import { events, getJson, hasKey, onKey, request } from './api.js';
import { breathe, h, show } from './dom.js';
import { addNode, choose, dropTalk, listTalks, loadTalk, messagesOf, newTalk, path, saveTalk } from './talks.js';
import { Turn } from './turn.js';

const kSettings = 'skein.settings';
const kNumbers = [
  ['temperature', 'Temperature', 0, 5, 0.1], ['top_p', 'Top p', 0, 1, 0.05], ['top_k', 'Top k', 0, 1000, 1],
  ['min_p', 'Min p', 0, 1, 0.01], ['max_tokens', 'Max tokens', 1, 1_000_000, 1], ['seed', 'Seed', 0, 2 ** 31, 1],
];
// What the small default model answers well.
const kIdeas = ['Why is the sky blue?', 'What are three good habits for the morning?', 'Write a Python function that reverses a string'];

let settings = { logprobs: true };
try {
  settings = { ...settings, ...JSON.parse(localStorage.getItem(kSettings) ?? '{}') };
} catch { /* as if nothing was kept */ }

class Chat {
  constructor() {
    this.talk = newTalk();
    this.turns = new Map();  // by the node's id
    this.running = null;     // {abort}
    this.model = h('select', { 'aria-label': 'Model' });
    this.list = h('section', { class: 'talk', role: 'log', 'aria-label': 'Conversation', tabindex: '0' });
    this.box = h('textarea', { rows: 1, placeholder: 'Ask anything', 'aria-label': 'Message', autocomplete: 'off' });
    this.send = h('button', { class: 'primary' }, 'Send');
    this.settings = this.#settingsPanel();
    this.more = h('button', { type: 'button', class: 'quiet', 'aria-expanded': 'false', onclick: () => this.#toggleSettings() }, 'Settings');
    this.node = h('div', { class: 'chat' },
      h('header', { class: 'chat-head' }, h('h1', { class: 'away' }, 'Chat'), this.model, h('span', { class: 'grow' }),
        h('button', { type: 'button', class: 'quiet', onclick: () => this.begin(newTalk()) }, 'New chat'), this.more),
      this.list,
      h('footer', { class: 'composer' },
        h('form', { onsubmit: (event) => { event.preventDefault(); this.submit(); } }, this.box, this.send),
        h('small', { class: 'muted' }, 'Enter sends, Shift+Enter begins a line, Esc stops. Conversations stay in this browser.')),
      this.settings);
    this.box.addEventListener('input', () => this.#fit());
    this.node.addEventListener('keydown', (event) => {
      if (event.key === 'Escape' && this.running) this.stop();
      if (event.target !== this.box || event.key !== 'Enter' || event.shiftKey || event.isComposing) return;
      event.preventDefault();
      this.submit();
    });
    this.model.addEventListener('change', () => { settings.model = this.model.value; keepSettings(); });
    addEventListener('storage', () => this.drawTalks());
    onKey(() => this.loadModels());
    this.draw();
  }

  async loadModels() {
    try {
      const { data } = await getJson('/v1/models');
      show(this.model, data.map((model) => h('option', { value: model.id, selected: model.id === settings.model }, model.id)));
    } catch (error) {
      show(this.model, h('option', { value: '' }, error.status === 401 ? 'a key is needed' : 'no models'));
    }
  }

  // ---- what is asked ----

  body(node) {
    const nodes = path(this.talk, node).filter((one) => one !== node);
    const body = { model: node.model || this.model.value, messages: messagesOf(nodes, settings.system), stream: true, stream_options: { include_usage: true } };
    for (const [name] of kNumbers) {
      if (settings[name] !== undefined && settings[name] !== '') body[name] = Number(settings[name]);
    }
    if (settings.logprobs) Object.assign(body, { logprobs: true, top_logprobs: 4 });
    if (settings.tools?.trim()) body.tools = JSON.parse(settings.tools);
    return body;
  }

  submit() {
    if (this.running) return this.stop();
    const text = this.box.value.trim();
    if (text === '') return;
    this.box.value = '';
    this.#fit();
    const last = path(this.talk).at(-1);
    if (!this.talk.title) this.talk.title = text.slice(0, 60);
    this.answer(addNode(this.talk, last, { role: 'user', content: text }));
  }

  stop() {
    this.running?.abort();
  }

  async answer(parent) {
    const node = addNode(this.talk, parent, { role: 'assistant', content: '', model: this.model.value, tokens: [] });
    const abort = new AbortController();
    this.running = abort;
    this.talk.at = Date.now();
    const { talk } = this;
    saveTalk(talk);
    this.draw();
    this.#setSend(true);
    const turn = this.turns.get(node.id);
    turn.writing(true);
    try {
      await stream(this.body(node), turn, abort.signal);
      turn.finish();
    } catch (error) {
      if (abort.signal.aborted) {
        node.meta = { ...node.meta, end: 'stopped' };
        turn.finish();
      } else {
        turn.fail(error);
      }
    }
    if (this.running === abort) this.running = null;
    this.#setSend(false);
    saveTalk(talk);
    this.drawTalks();
  }

  // ---- what is shown ----

  begin(talk) {
    this.stop();
    this.talk = talk;
    this.turns.clear();
    this.draw();
    this.drawTalks();
    this.box.focus();
  }

  draw() {
    const nodes = path(this.talk);
    if (nodes.length === 0) {
      show(this.list, h('div', { class: 'hello' }, h('h1', null, 'What shall we untangle?'),
        h('p', null, 'Everything you write stays between this page and your server.'),
        h('div', { class: 'row' }, kIdeas.map((idea) => h('button', { type: 'button', onclick: () => { this.box.value = idea; this.submit(); } }, idea)))));
      return;
    }
    show(this.list, nodes.map((node) => this.#turn(node).node));
    for (const turn of this.turns.values()) if (!turn.node.classList.contains('writing')) turn.drawFoot();
    this.#toEnd();
  }

  #turn(node) {
    if (!this.turns.has(node.id)) {
      this.turns.set(node.id, new Turn(this.talk, node, {
        branch: (other) => { if (this.running) return; choose(this.talk, other); saveTalk(this.talk); this.draw(); },
        edit: (old, text) => { if (!this.running) this.answer(addNode(this.talk, this.talk.nodes[old.parent], { role: 'user', content: text })); },
        retry: (old) => { if (!this.running) this.answer(this.talk.nodes[old.parent]); },
        answerCall: (old, call, text) => { if (!this.running) this.answer(addNode(this.talk, old, { role: 'tool', call: call.id, content: text })); },
        body: (old) => ({ body: this.body(old), keyed: hasKey() }),
        grew: () => { if (this.isAtEnd) this.#toEnd(); },
      }));
    }
    return this.turns.get(node.id);
  }

  get isAtEnd() {
    return this.list.scrollHeight - this.list.scrollTop - this.list.clientHeight < 160;
  }
  #toEnd() {
    this.list.scrollTop = this.list.scrollHeight;
  }
  #fit() {
    this.box.style.height = 'auto';
    this.box.style.height = `${this.box.scrollHeight}px`;
  }
  #setSend(running) {
    this.send.textContent = running ? 'Stop' : 'Send';
  }

  drawTalks() {
    if (!this.side) return;
    const talks = listTalks();
    show(this.side, talks.length > 0 && h('div', { class: 'side-title' }, 'Conversations'),
      h('ul', { class: 'talks' }, talks.map(({ id, title }) => h('li', { class: id === this.talk.id ? 'on' : '' },
        h('button', { type: 'button', onclick: () => { const talk = loadTalk(id); if (talk) this.begin(talk); } }, title || 'untitled'),
        h('button', { type: 'button', class: 'drop', 'aria-label': `Forget ${title}`, onclick: () => { dropTalk(id); if (id === this.talk.id) this.begin(newTalk()); this.drawTalks(); } }, '×')))));
  }

  #toggleSettings() {
    this.settings.hidden = !this.settings.hidden;
    this.more.setAttribute('aria-expanded', String(!this.settings.hidden));
  }

  #settingsPanel() {
    const keep = (name, value) => { settings[name] = value; keepSettings(); };
    const tools = h('textarea', { class: 'code-box', rows: 5, spellcheck: 'false', placeholder: '[{"type": "function", …}]', value: settings.tools ?? '', oninput: () => {
      keep('tools', tools.value);
      try { if (tools.value.trim()) JSON.parse(tools.value); tools.setCustomValidity(''); } catch (error) { tools.setCustomValidity(error.message); }
      tools.reportValidity();
    } });
    return h('aside', { class: 'settings', hidden: true, 'aria-label': 'Settings' },
      h('h2', null, 'Settings'),
      h('label', null, 'System prompt', h('textarea', { rows: 4, value: settings.system ?? '', oninput: (event) => keep('system', event.target.value) })),
      h('div', { class: 'fields' }, kNumbers.map(([name, label, min, max, step]) => h('label', null, label,
        h('input', { type: 'number', min, max, step, placeholder: 'model’s', value: settings[name] ?? '', oninput: (event) => keep(name, event.target.value) })))),
      h('label', null, 'Tools (a JSON list, as OpenAI’s)', tools),
      h('label', null, h('input', { type: 'checkbox', checked: settings.logprobs, onchange: (event) => keep('logprobs', event.target.checked) }), 'Token probabilities'));
  }
}

function keepSettings() {
  localStorage.setItem(kSettings, JSON.stringify(settings));
}

// One answer, from the request to its last token.
async function stream(body, turn, signal) {
  const node = turn.data;
  const began = performance.now();
  const response = await request('POST', '/v1/chat/completions', body, { signal });
  let first = 0, last = 0, pieces = 0;
  const meta = (node.meta = {});
  const settle = (usage) => {
    meta.tokens = usage?.completion_tokens ?? pieces;
    meta.prompt_tokens = usage?.prompt_tokens;
    meta.cached_tokens = usage?.prompt_tokens_details?.cached_tokens;
    meta.total_ms = performance.now() - began;
    if (last > first) meta.rate = ((meta.tokens - 1) * 1000) / (last - first);
  };
  try {
    for await (const data of events(response)) {
      if (data === '[DONE]') break;
      const chunk = JSON.parse(data);
      if (chunk.error) throw new Error(chunk.error.message);
      if (chunk.usage) settle(chunk.usage);
      const choice = chunk.choices?.[0];
      if (!choice) continue;
      const { delta } = choice;
      if (delta.content || delta.reasoning_content || delta.reasoning || delta.tool_calls) {
        last = performance.now();
        if (first === 0) meta.first_ms = (first = last) - began;
        ++pieces;
      }
      if (delta.reasoning_content ?? delta.reasoning) turn.addThought(delta.reasoning_content ?? delta.reasoning);
      if (delta.content) turn.addText(delta.content);
      if (delta.tool_calls) turn.addCalls(delta.tool_calls);
      for (const token of choice.logprobs?.content ?? []) {
        node.tokens.push({ text: token.token, p: Math.exp(token.logprob), others: (token.top_logprobs ?? []).map((other) => ({ text: other.token, p: Math.exp(other.logprob) })) });
      }
      if (choice.finish_reason) meta.end = choice.finish_reason;
    }
  } finally {
    if (meta.tokens === undefined) settle();
    await breathe();
  }
}

let chat = null;
export function open(main, side) {
  chat ??= new Chat();
  chat.side = side;
  show(main, chat.node);
  chat.loadModels();
  chat.drawTalks();
  chat.box.focus({ preventScroll: true });
  return () => { chat.side = null; show(side); };
}

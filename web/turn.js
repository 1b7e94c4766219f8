// One message of a conversation, as it is shown.
import { copy, count, duration, h, hideTip, show, showTip } from './dom.js';
import { MarkdownStream } from './markdown.js';
import { siblings } from './talks.js';

const kDrawEveryMs = 40;

// `does` has what its buttons ask for: branch, edit, retry, answerCall, body.
export class Turn {
  constructor(talk, node, does) {
    this.talk = talk;
    this.data = node;
    this.does = does;
    this.said = h('div', { class: 'said' });
    this.before = h('div');
    this.foot = h('div', { class: 'turn-foot' });
    this.node = h('article', { class: `turn ${node.role === 'user' ? 'user' : 'assistant'}`, 'aria-label': node.role === 'user' ? 'You' : node.model || node.role },
      this.before, this.said, this.foot);
    this.pending = '';
    this.timer = 0;
    this.#begin();
    if (node.content || node.calls?.length || node.thoughts) this.#drawWhole();
    this.drawFoot();
  }

  #begin() {
    show(this.said);
    this.markdown = this.data.role === 'assistant' ? new MarkdownStream(this.said) : null;
  }

  #drawWhole() {
    const { data } = this;
    if (data.thoughts) this.#drawThoughts();
    if (data.calls?.length) this.#drawCalls();
    if (data.role === 'tool') show(this.said, h('div', { class: 'call' }, h('span', { class: 'muted' }, 'Result'), h('pre', null, data.content)));
    else if (this.markdown === null) show(this.said, data.content);
    else {
      this.markdown.push(data.content);
      this.markdown.finish();
    }
  }

  // ---- while it is written ----

  writing(on) {
    this.node.classList.toggle('writing', on);
    this.node.setAttribute('aria-busy', String(on));
  }

  addText(text) {
    this.data.content += text;
    this.pending += text;
    this.#soon();
  }
  addThought(text) {
    this.data.thoughts = (this.data.thoughts ?? '') + text;
    this.thoughtsGrew = true;
    this.#soon();
  }
  addCalls(deltas) {
    this.data.calls ??= [];
    for (const delta of deltas) {
      const call = (this.data.calls[delta.index ?? 0] ??= { id: '', type: 'function', function: { name: '', arguments: '' } });
      call.id = delta.id ?? call.id;
      call.function.name += delta.function?.name ?? '';
      call.function.arguments += delta.function?.arguments ?? '';
    }
    this.callsGrew = true;
    this.#soon();
  }
  #soon() {
    if (this.timer === 0) this.timer = setTimeout(() => this.#draw(), kDrawEveryMs);
  }
  #draw() {
    this.timer = 0;
    if (this.thoughtsGrew) this.#drawThoughts(true);
    if (this.callsGrew) this.#drawCalls();
    this.thoughtsGrew = this.callsGrew = false;
    const text = this.pending;
    this.pending = '';
    if (text) this.markdown.push(text);
    this.does.grew?.();
  }
  finish() {
    clearTimeout(this.timer);
    this.#draw();
    this.markdown?.finish();
    this.writing(false);
    if (this.thoughtsBox && this.data.content) this.thoughtsBox.open = false;
    this.drawFoot();
    this.does.grew?.();
  }
  fail(error) {
    this.finish();
    this.said.append(h('p', { class: 'problem', role: 'alert' }, error.message));
  }

  #drawThoughts(open = false) {
    if (!this.thoughtsBox) {
      this.thoughtsText = document.createTextNode('');
      this.thoughtsBox = h('details', { class: 'thoughts', open }, h('summary', null, 'Thoughts'), h('p', null, this.thoughtsText));
      this.before.append(this.thoughtsBox);
    }
    const text = this.data.thoughts;
    this.thoughtsText.appendData(text.slice(this.thoughtsText.length));
  }

  #drawCalls() {
    this.callsBox ??= this.before.appendChild(h('div'));
    show(this.callsBox, this.data.calls.filter(Boolean).map((call) => h('div', { class: 'call' },
      h('span', null, h('span', { class: 'pill hot' }, 'calls'), ' ', h('code', null, call.function.name)),
      h('pre', null, pretty(call.function.arguments)),
      this.node.classList.contains('writing') ? null : this.#answerForm(call))));
  }
  #answerForm(call) {
    const input = h('input', { 'aria-label': `Result of ${call.function.name}`, placeholder: 'Its result, to go on with' });
    return h('form', { onsubmit: (event) => { event.preventDefault(); this.does.answerCall(this.data, call, input.value); } },
      input, h('button', null, 'Answer'));
  }

  // ---- around it ----

  drawFoot() {
    const { data, does } = this;
    const all = siblings(this.talk, data);
    const at = all.indexOf(data);
    const tiny = (name, onclick, more) => h('button', { type: 'button', class: 'tiny', onclick, ...more }, name);
    const branches = all.length > 1 && [
      tiny('‹', () => does.branch(all[at - 1]), { disabled: at === 0, 'aria-label': 'Earlier branch' }),
      h('span', { class: 'num' }, `${at + 1}/${all.length}`),
      tiny('›', () => does.branch(all[at + 1]), { disabled: at === all.length - 1, 'aria-label': 'Later branch' })];
    if (data.role === 'user') return show(this.foot, branches, tiny('Edit', () => this.#edit()), copyButton('Copy', () => data.content));
    if (data.role === 'tool') return show(this.foot, branches);
    const { meta } = data;
    const speed = meta?.first_ms !== undefined && h('span', { class: 'speed', title: speedTitle(meta) },
      `${meta.rate ? `${meta.rate < 100 ? meta.rate.toFixed(1) : Math.round(meta.rate)} tok/s · ` : ''}first after ${duration(meta.first_ms)}`
      + `${meta.tokens ? ` · ${count(meta.tokens)} tokens` : ''}${meta.end && meta.end !== 'stop' ? ` · ${meta.end}` : ''}`);
    show(this.foot, branches, speed,
      tiny('Retry', () => does.retry(data)), copyButton('Copy', () => data.content),
      data.tokens?.length > 0 && tiny(this.tokensBox ? 'Text' : 'Tokens', () => this.#toggleTokens(), { 'aria-pressed': Boolean(this.tokensBox) }),
      copyButton('curl', () => asCurl(does.body(data))), copyButton('Python', () => asPython(does.body(data))));
  }

  #edit() {
    const box = h('textarea', { class: 'edit', 'aria-label': 'Edit the message', rows: Math.min(12, this.data.content.split('\n').length + 1), value: this.data.content });
    const done = (save) => {
      show(this.said, this.data.content);
      this.drawFoot();
      if (save && box.value.trim()) this.does.edit(this.data, box.value);
    };
    show(this.said, box);
    show(this.foot, h('button', { class: 'tiny', onclick: () => done(false) }, 'Cancel'), h('button', { class: 'tiny', onclick: () => done(true) }, 'Send'));
    box.addEventListener('keydown', (event) => {
      if (event.key === 'Escape') done(false);
      if (event.key === 'Enter' && !event.shiftKey && !event.isComposing) { event.preventDefault(); done(true); }
    });
    box.focus();
  }

  // The answer token by token, each with what else could have come.
  #toggleTokens() {
    if (this.tokensBox) {
      this.tokensBox.replaceWith(this.said);
      this.tokensBox = null;
      return this.drawFoot();
    }
    const { tokens } = this.data;
    this.tokensBox = h('div', { class: 'tokens', tabindex: '0', 'aria-label': 'Tokens with their probabilities' },
      tokens.map((token, i) => h('span', { class: shade(token.p), 'data-at': i }, token.text)));
    const over = (event) => {
      const at = event.target.dataset?.at;
      if (at === undefined) return hideTip();
      showTip(event.target, tokenTip(tokens[at]));
    };
    this.tokensBox.addEventListener('pointerover', over);
    this.tokensBox.addEventListener('click', over);
    this.tokensBox.addEventListener('pointerleave', hideTip);
    this.said.replaceWith(this.tokensBox);
    this.drawFoot();
  }
}

const percent = (p) => (p >= 0.9995 ? '100 %' : p >= 0.001 ? `${(100 * p).toFixed(1)} %` : '< 0.1 %');
const shade = (p) => (p > 0.8 ? '' : p > 0.5 ? 'p3' : p > 0.2 ? 'p2' : 'p1');
function tokenTip(token) {
  const row = (text, p, is) => h('tr', null, h('td', null, is ? '▸ ' : '', JSON.stringify(text)), h('td', null, percent(p)));
  const others = token.others.filter((other) => other.text !== token.text);
  return h('table', null, row(token.text, token.p, true), others.map((other) => row(other.text, other.p)));
}

function copyButton(name, text) {
  const button = h('button', { type: 'button', class: 'tiny', title: name === 'Copy' ? 'Copy the text' : `Copy as ${name}`, onclick: () => copy(text(), button) }, name);
  return button;
}

function pretty(text) {
  try {
    return JSON.stringify(JSON.parse(text), null, 2);
  } catch {
    return text;
  }
}

function speedTitle(meta) {
  return [`first token after ${duration(meta.first_ms)}`, meta.total_ms && `whole answer ${duration(meta.total_ms)}`,
    meta.prompt_tokens && `${count(meta.prompt_tokens)} tokens of prompt${meta.cached_tokens ? `, ${count(meta.cached_tokens)} of them cached` : ''}`]
    .filter(Boolean).join('\n');
}

function asCurl({ body, keyed }) {
  const quoted = JSON.stringify(body, null, 2).replaceAll("'", "'\\''");
  return `curl -N ${location.origin}/v1/chat/completions \\\n  -H 'Content-Type: application/json' \\\n`
    + `${keyed ? '  -H "Authorization: Bearer $SKEIN_KEY" \\\n' : ''}  -d '${quoted}'\n`;
}

function asPython({ body, keyed }) {
  const known = ['model', 'messages', 'stream', 'temperature', 'top_p', 'max_tokens', 'seed', 'tools', 'stream_options', 'logprobs', 'top_logprobs'];
  const python = (value) => JSON.stringify(value, null, 4).replace(/("(?:[^"\\]|\\.)*")|\btrue\b|\bfalse\b|\bnull\b/g,
    (all, text) => text ?? { true: 'True', false: 'False', null: 'None' }[all]).replaceAll('\n', '\n    ');
  const fields = known.filter((name) => body[name] !== undefined).map((name) => `    ${name}=${python(body[name])},`);
  const extra = Object.fromEntries(Object.entries(body).filter(([name]) => !known.includes(name)));
  if (Object.keys(extra).length) fields.push(`    extra_body=${python(extra)},`);
  return `import os\nfrom openai import OpenAI\n\nclient = OpenAI(base_url="${location.origin}/v1", api_key=${keyed ? 'os.environ["SKEIN_KEY"]' : '"none"'})\n`
    + `stream = client.chat.completions.create(\n${fields.join('\n')}\n)\nfor chunk in stream:\n`
    + '    if chunk.choices:\n        print(chunk.choices[0].delta.content or "", end="", flush=True)\n';
}

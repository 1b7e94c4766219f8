// Live: what the engine is doing this second.
import { bytes, count, duration, h, hideTip, problem, show, showTip, svg, title } from './dom.js';
import { watch } from './feed.js';

const kKept = 240;  // frames: a minute
const kWindow = 4;  // frames that a rate is taken over: a second
const kEvents = 60;
const kClasses = ['high', 'normal', 'low'];

// The time below which `share` of the steps between two frames stayed, from their buckets.
function percentile(before, now, share) {
  const counts = now.step_us.map((n, i) => n - before.step_us[i]);
  const all = counts.reduce((sum, n) => sum + n, 0);
  if (all <= 0) return null;
  let left = all * share;
  for (let i = 0; i < counts.length; ++i) {
    if (counts[i] > 0 && left <= counts[i]) {
      const high = now.step_us_first_bucket * 2 ** i;
      return (high / 2 + (high / 2) * (left / counts[i])) / 1000;
    }
    left -= counts[i];
  }
  return null;
}

class Chart {
  constructor(name, unit, lines) {
    this.lines = lines;
    this.unit = unit;
    this.value = h('b', null, '–');
    this.paths = lines.map(({ color }) => [svg('path', { class: 'area' }), svg('path', {})].map((node, i) => {
      node.style[i === 0 ? 'fill' : 'stroke'] = `var(${color})`;
      return node;
    }));
    this.top = h('span', { class: 'muted' });
    this.svg = svg('svg', { class: 'chart', viewBox: '0 0 600 140', preserveAspectRatio: 'none', role: 'img', 'aria-label': name },
      svg('line', { x1: 0, x2: 600, y1: 139.5, y2: 139.5 }), svg('line', { x1: 0, x2: 600, y1: 70, y2: 70, 'stroke-dasharray': '2 5' }), this.paths);
    for (const path of this.svg.querySelectorAll('path')) path.setAttribute('vector-effect', 'non-scaling-stroke');
    this.node = h('section', { class: 'card' }, h('div', { class: 'chart-head' }, h('h2', null, name), this.value), this.svg,
      h('div', { class: 'legend' }, lines.map(({ name: line, color }) => {
        const mark = h('i');
        mark.style.background = `var(${color})`;
        return h('span', null, mark, line);
      }), h('span', { class: 'grow' }), this.top));
  }
  draw(points, say) {
    const highest = Math.max(1e-9, ...points.flatMap((point) => this.lines.map((line) => point[line.field] ?? 0))) * 1.15;
    const x = (i) => 600 - (points.length - 1 - i) * (600 / (kKept - 1));
    this.lines.forEach((line, l) => {
      let text = '';
      let began = false;
      points.forEach((point, i) => {
        const value = point[line.field];
        if (value === null || value === undefined) return;
        text += `${began ? 'L' : 'M'}${x(i).toFixed(1)} ${(139 - (value / highest) * 134).toFixed(1)}`;
        began = true;
      });
      this.paths[l][1].setAttribute('d', text);
      this.paths[l][0].setAttribute('d', text && l === 0 ? `${text}L600 139L${/^M([\d.]+)/.exec(text)[1]} 139Z` : '');
    });
    this.value.textContent = say;
    this.top.textContent = `a minute, up to ${this.unit(highest / 1.15)}`;
  }
}

class Blocks {
  constructor() {
    this.canvas = h('canvas', { class: 'blocks', role: 'img', 'aria-label': 'KV blocks' });
    this.figures = h('div', { class: 'legend' });
    this.note = h('span', { class: 'muted num' });
    this.node = h('section', { class: 'card' }, h('div', { class: 'chart-head' }, h('h2', null, 'KV blocks'), this.note), this.canvas, this.figures);
    this.canvas.addEventListener('pointermove', (event) => this.#over(event));
    this.canvas.addEventListener('pointerleave', hideTip);
  }
  draw(model, frame) {
    const { kv } = model;
    this.kv = kv;
    this.frame = frame;
    const cells = kv.cells ?? '';
    const width = this.canvas.clientWidth || 600;
    const ratio = devicePixelRatio || 1;
    const least = Math.max(5, Math.min(18, Math.sqrt((width * 130) / Math.max(1, cells.length))));
    const down = Math.max(1, Math.ceil(cells.length / Math.max(1, Math.floor(width / least))));
    this.across = Math.max(1, Math.ceil(cells.length / down)); // so that the last row is not a single square
    this.size = Math.max(least, Math.min(24, width / this.across));
    this.canvas.width = width * ratio;
    this.canvas.height = down * this.size * ratio;
    this.canvas.style.height = `${down * this.size}px`;
    const ink = this.canvas.getContext('2d');
    ink.scale(ratio, ratio);
    const colors = this.#colors();
    const gap = this.size > 8 ? 1.5 : 1;
    for (let i = 0; i < cells.length; ++i) {
      ink.fillStyle = colors[cells[i]];
      ink.beginPath();
      ink.roundRect((i % this.across) * this.size, Math.floor(i / this.across) * this.size, this.size - gap, this.size - gap, this.size > 8 ? 2 : 1);
      ink.fill();
    }
    const free = kv.pool - kv.held - kv.cached;
    this.note.textContent = kv.pool ? `${Math.round((100 * kv.held) / kv.pool)} % held · ${count(kv.pool)} blocks of 32 tokens` : 'none';
    const mark = (color) => { const node = h('i'); node.style.background = `var(${color})`; return node; };
    show(this.figures, h('span', null, mark('--held'), `held ${count(kv.held)}`), h('span', null, mark('--shared'), 'shared by several'),
      h('span', null, mark('--cached'), `cached ${count(kv.cached)}`), h('span', null, mark('--free'), `free ${count(free)}`),
      kv.cell_blocks > 1 && h('span', null, `a square is ${kv.cell_blocks} blocks`));
  }
  // As a canvas takes them; they change with the theme alone.
  #colors() {
    const theme = `${document.documentElement.dataset.theme} ${matchMedia('(prefers-color-scheme: dark)').matches}`;
    if (this.theme === theme) return this.known;
    const probe = this.node.appendChild(h('i', { hidden: true }));
    const color = (name) => { probe.style.color = `var(${name})`; return getComputedStyle(probe).color; };
    this.known = { '.': color('--free'), c: color('--cached'), h: color('--held'), s: color('--shared') };
    this.theme = theme;
    probe.remove();
    return this.known;
  }
  #over(event) {
    const box = this.canvas.getBoundingClientRect();
    const at = Math.floor((event.clientY - box.top) / this.size) * this.across + Math.floor((event.clientX - box.left) / this.size);
    const use = this.kv?.cells?.[at];
    if (use === undefined) return hideTip();
    const words = { '.': 'free', c: 'cached: a prefix that the next request may find', h: 'held', s: 'shared by several requests' };
    const holder = this.frame.requests[this.kv.holders[at]];
    showTip({ left: event.clientX, top: event.clientY - 4, bottom: event.clientY + 14 }, h('div', null, `block ${at * this.kv.cell_blocks}: ${words[use]}`),
      'hs'.includes(use) && h('div', null, holder ? `${holder.id}${holder.key ? ` of ${holder.key}` : ''}, class ${holder.class}` : 'of a request that you may not see'));
  }
}

function figure(value, name) {
  return h('div', { class: 'figure' }, h('b', null, value), h('span', null, name));
}

export function lanes(frame) {
  const rows = frame.requests.flatMap((request) => (request.choices.length ? request.choices : [{ state: 'preparing', explanation: 'the model is loaded, or the prompt is made' }])
    .map((choice) => ({ request, choice })));
  return kClasses.map((name) => {
    const own = rows.filter(({ request }) => request.class.toLowerCase() === name);
    const waiting = frame.models.reduce((sum, model) => sum + (model.engine?.[`waiting_${name}`] ?? 0), 0);
    const oldest = Math.max(0, ...frame.models.map((model) => model.engine?.[`oldest_${name}_ms`] ?? 0));
    const bead = ({ request, choice }) => {
      const state = choice.state.toLowerCase();
      const node = h('button', { type: 'button', class: `bead ${state}` }, state === 'waiting' ? `#${choice.queue_position}` : `${choice.generated_tokens ?? ''}${state === 'prefilling' ? '…' : ''}` || '·');
      const tell = () => showTip(node, h('div', null, request.id), h('div', null, choice.explanation),
        choice.prompt_tokens !== undefined && h('div', null, `${count(choice.computed_tokens)} computed, ${count(choice.cached_tokens)} cached of ${count(choice.prompt_tokens)} + ${count(choice.generated_tokens)} tokens; ${choice.blocks} blocks`));
      node.addEventListener('pointerenter', tell);
      node.addEventListener('focus', tell);
      node.addEventListener('pointerleave', hideTip);
      node.addEventListener('blur', hideTip);
      return node;
    };
    return h('div', null,
      h('div', { class: 'lane-head' }, h('span', null, name.toUpperCase()), h('span', { class: 'num' }, waiting ? `${waiting} waiting, the oldest for ${duration(oldest)}` : 'nobody waits')),
      h('div', { class: 'beads' }, own.slice(0, 200).map(bead)));
  });
}

// What counters say has happened between two frames.
function happened(before, now) {
  const rows = [];
  const add = (field, text) => {
    const n = now[field] - before[field];
    if (n > 0) rows.push(text(n));
  };
  add('preemptions', (n) => `${count(n)} preempted: their blocks went to others`);
  add('prefix_hit_tokens', (n) => `${count(n)} prompt tokens found in the prefix cache`);
  add('evictions', (n) => `${count(n)} cached blocks given to somebody else`);
  add('refused', (n) => `${count(n)} refused`);
  add('cancelled', (n) => `${count(n)} cancelled`);
  return rows;
}

export function open(main) {
  const points = [];
  const log = [];
  const past = [];  // the frames of the last second
  let chosen = null, shown = null;  // ids of models
  const figures = h('div', { class: 'figures' });
  const select = h('select', { 'aria-label': 'Model', onchange: () => { chosen = select.value; } });
  const rate = new Chart('Tokens a second', (n) => count(n), [{ name: 'generated', field: 'generated', color: '--line-1' }, { name: 'computed, prompts too', field: 'computed', color: '--line-2' }]);
  const gap = new Chart('Between two tokens', duration, [{ name: 'median', field: 'p50', color: '--line-2' }, { name: '99 %', field: 'p99', color: '--line-1' }]);
  const blocks = new Blocks();
  const lane = h('div', { class: 'lanes' });
  const events = h('ol', { class: 'happened', tabindex: '0', 'aria-label': 'What happened' });
  const limits = h('div');
  const status = h('span', { class: 'pill' }, 'connecting…');
  const trouble = h('div');
  show(main, h('div', { class: 'page' }, title('Live', null, status, select), trouble, h('section', { class: 'card' }, figures),
    h('div', { class: 'cards' }, rate.node, gap.node), blocks.node,
    h('div', { class: 'cards' }, h('section', { class: 'card' }, h('h2', null, 'Queue and batch, by class'), lane),
      h('section', { class: 'card' }, h('h2', null, 'What happened'), events), h('section', { class: 'card' }, h('h2', null, 'Limits'), limits))));

  const onFrame = (frame) => {
    show(trouble);
    status.textContent = frame.draining ? 'draining' : { all: 'all requests', own: 'own requests, totals of all', totals: 'totals' }[frame.scope];
    const loaded = frame.models.filter((model) => model.engine);
    if (select.options.length !== loaded.length) show(select, loaded.map((model) => h('option', { value: model.id, selected: model.id === chosen }, model.id)));
    select.hidden = loaded.length < 2;
    const model = loaded.find((one) => one.id === chosen) ?? loaded[0];
    if (!model) return show(trouble, h('p', { class: 'note' }, 'No model is loaded.'));
    const { engine } = model;
    if (shown !== model.id) points.length = past.length = 0;
    shown = model.id;
    const [first] = past;
    if (first && frame.at_ms > past.at(-1).at) {
      const seconds = (frame.at_ms - first.at) / 1000;
      points.push({ generated: (engine.generated_tokens - first.engine.generated_tokens) / seconds, computed: (engine.computed_tokens - first.engine.computed_tokens) / seconds,
        p50: percentile(first.engine, engine, 0.5), p99: percentile(first.engine, engine, 0.99) });
      if (points.length > kKept) points.shift();
      for (const text of happened(past.at(-1).engine, engine)) log.unshift({ at: new Date(), text });
      log.length = Math.min(log.length, kEvents);
    }
    past.push({ at: frame.at_ms, engine });
    if (past.length > kWindow) past.shift();
    rate.draw(points, count(points.at(-1)?.generated));
    const lastGap = [...points].reverse().find((point) => point.p50 !== null);
    gap.draw(points, lastGap ? duration(lastGap.p50) : '–');
    blocks.draw(model, frame);
    const waiting = kClasses.reduce((sum, name) => sum + engine[`waiting_${name}`], 0);
    show(figures, figure(count(engine.running), 'decoding'), figure(count(engine.prefilling), 'in prefill'), figure(count(waiting), 'waiting'),
      figure(engine.prefix_query_tokens ? `${Math.round((100 * engine.prefix_hit_tokens) / engine.prefix_query_tokens)} %` : '–', 'prefix hits'),
      figure(count(engine.preemptions), 'preemptions'), figure(count(engine.completed), 'answers'), figure(count(engine.generated_tokens), 'tokens in all'));
    if (!lane.contains(document.activeElement)) show(lane, lanes(frame));
    show(events, log.length === 0 && h('li', { class: 'muted' }, 'Preemptions, prefix hits and refusals appear here.'),
      log.map(({ at, text }) => h('li', null, h('time', null, at.toTimeString().slice(0, 8)), text)));
    show(limits, limit('Batch', engine.running + engine.prefilling, model.max_batch, count), limit('KV pool', model.kv.held, model.kv.pool, count),
      limit('Memory of models', frame.limits.models.used_bytes, frame.limits.models.limit_bytes, bytes),
      limit('Memory of requests', frame.limits.requests.used_bytes, frame.limits.requests.limit_bytes, bytes),
      h('p', { class: 'muted' }, `A request may have ${count(model.max_request_tokens)} tokens. ${count(frame.watchers)} page${frame.watchers === 1 ? '' : 's'} watch.`));
  };
  const end = watch(onFrame, (error) => show(trouble, problem(error)));
  return () => { hideTip(); end(); };
}

function limit(name, used, of, unit) {
  const fill = h('i');
  fill.style.width = `${of ? Math.min(100, (100 * used) / of) : 0}%`;
  return h('div', null, h('div', { class: 'lane-head' }, h('span', null, name), h('span', { class: 'num' }, `${unit(used)} of ${of ? unit(of) : 'no limit'}`)), h('div', { class: 'bar' }, fill));
}

// Markdown as it streams in, to nodes. What a model says is text: tags in it are shown, pictures are
// named and not loaded, and a link is http(s) or it is no link.
//
//   const answer = new MarkdownStream(node);
//   answer.push('some *tex'); answer.push('t*'); answer.finish();
//
// Blocks that have ended are never touched again, and of a long one only its end is made anew, so
// that the cost of a token does not grow with the answer. Nor is there text that takes longer than
// its length: no pattern below has two ways to read the same run, and none looks further than
// kReach for what closes a mark.
import { copy, h, show } from './dom.js';

const kLongText = 2000;  // of a block that is still open: what is before may be settled
const kLongestText = 8000;  // settled whether or not its marks are closed
const kLongCode = 6000;
const kFirstLines = 64;  // that are looked at for a block
const kMostQuotes = 8;  // inside each other; further marks are text
const kMostColumns = 64;  // of a table; further cells are left out

const kFence = /^ {0,3}(```+(?!`)|~~~+(?!~))([^`]*)$/;
const kHeading = /^(#{1,6})\s+(\S.*)?$/s;
const kRule = /^ {0,3}([-*_])(?:\s*\1){2,}\s*$/;
const kItem = /^(\s*)([-*+]|\d{1,9}[.)])\s+(.*)$/s;
const kQuote = /^ {0,3}>\s?(.*)$/s;

export class MarkdownStream {
  constructor(node, depth = 0) {
    this.node = node;
    this.depth = depth;  // of the quote that it is in
    this.text = '';     // of the block that is still open, and of what may follow it
    this.open = null;   // the node of that block
    this.code = null;   // an open fence: {mark, node, line}
    this.tail = null;   // of an open paragraph: what is drawn anew
  }

  push(text) {
    this.text += text;
    this.#render(false);
  }

  finish() {
    this.#render(true);
    this.text = '';
  }

  #render(last) {
    while (true) {
      if (this.code !== null) {
        if (!this.#takeCode(last)) return;
        continue;
      }
      const taken = this.#takeBlock(last);
      if (taken === 0) return;
      this.text = this.text.slice(taken);
    }
  }

  // Lines of an open fence, up to the one that closes it. False: it stays open.
  #takeCode(last) {
    const { mark } = this.code;
    while (true) {
      const end = this.text.indexOf('\n');
      if (end < 0 && !(last && this.text !== '')) break;
      const line = end < 0 ? this.text : this.text.slice(0, end);
      this.text = end < 0 ? '' : this.text.slice(end + 1);
      const closing = line.trim();
      if (closing.startsWith(mark) && closing.replaceAll(mark[0], '') === '') {
        this.code = null;
        this.open = null;
        return true;
      }
      this.code.add(line + '\n');
    }
    if (last) this.code = null;
    return false;
  }

  // The first block of the text is drawn. Its length once it has ended; 0: it may go on.
  #takeBlock(last) {
    const skip = /^(?:[ \t]*\n)+/.exec(this.text);
    if (skip && this.open === null) this.text = this.text.slice(skip[0].length);
    if (this.text === '') return 0;
    // Of a long text as many lines as the block takes: each block would go through all of it.
    for (let most = kFirstLines; ; most *= 8) {
      const lines = this.text.split('\n', most + 1);
      const isCut = lines.length > most;
      if (isCut) lines.pop();
      const taken = this.#takeFrom(lines, isCut, last);
      if (taken !== null) return taken;
    }
  }

  // As #takeBlock. `isCut`: more lines follow; null: the block may go on in them.
  #takeFrom(lines, isCut, last) {
    const whole = last || isCut ? lines.length : lines.length - 1;  // lines that are complete
    const first = lines[0];
    const fence = kFence.exec(first);
    if (fence) {
      if (whole === 0) return 0;  // its line goes on
      this.#clear();
      this.code = openCode(this.node, fence[1], fence[2].trim().split(/\s/)[0]);
      return Math.min(this.text.length, first.length + 1) || 0;
    }
    const kind = this.#kindOf(lines);
    const used = blockLines(kind, lines);
    if (isCut && used === lines.length) return null;
    const ended = used < whole || (used === whole && (kind === 'heading' || kind === 'rule')) || last;
    const source = lines.slice(0, used);
    this.#draw(kind, source, ended);
    if (!ended) return 0;
    this.#settle();
    return last && used === lines.length ? this.text.length
      : source.reduce((sum, line) => sum + line.length + 1, 0);
  }

  #kindOf(lines) {
    const kind = kindOf(lines, 0);
    return kind === 'quote' && this.depth === kMostQuotes ? 'text' : kind;
  }

  #draw(kind, lines, ended) {
    const isLong = !ended && this.text.length > kLongText;
    if (isLong && kind === 'text') lines = this.#settlePart(lines.join('\n')).split('\n');
    if (isLong && kind === 'list') lines = this.#settleItems(lines);
    if (kind === 'table' && this.open?.grow) return this.open.grow(lines);
    if (kind === 'text' && this.tail !== null) return show(this.tail, inline(lines.join('\n')));
    this.tail = kind === 'text' ? h('span', null, inline(lines.join('\n'))) : null;
    const node = this.tail ? h('p', null, this.tail) : makeBlock(kind, lines, this.depth);
    if (this.open === null) this.node.append(node);
    else this.open.replaceWith(node);
    this.open = node;
  }

  // A long paragraph: all but its end is drawn once and kept. -> the end
  #settlePart(text) {
    const isLongest = text.length > kLongestText;
    const space = text.lastIndexOf(' ', text.length - 400);
    const at = space < 0 && isLongest ? text.length - 400 : space;
    const head = text.slice(0, at + 1);
    if (at < 0 || this.tail === null || !(isLongest || isBalanced(head))) return text;
    this.tail?.before(h('span', null, inline(head)));
    this.text = this.text.slice(head.length);
    return text.slice(head.length);
  }

  // Likewise the items of a long list but for the last. -> the lines that are left
  #settleItems(lines) {
    const indent = kItem.exec(lines[0])[1].length;
    const last = lines.findLastIndex((line) => kItem.exec(line)?.[1].length <= indent);
    if (last <= 0) return lines;
    const head = lines.slice(0, last);
    const node = makeBlock('list', head);
    node.classList.add('goes-on');
    if (this.open === null) this.node.append(node);
    else this.open.before(node);
    this.text = this.text.slice(head.reduce((sum, line) => sum + line.length + 1, 0));
    return lines.slice(last);
  }

  #settle() {
    this.open = null;
    this.tail = null;
  }

  #clear() {
    if (this.open !== null) this.open.remove();
    this.#settle();
  }
}

const isBalanced = (text) => ['`', '*', '_', '~', '['].every((mark) => {
  const marks = text.split(mark).length - 1;
  return mark === '[' ? marks === text.split(']').length - 1 : marks % 2 === 0;
});

function kindOf(lines, at) {
  const line = lines[at];
  if (kFence.test(line)) return 'fence';
  if (kHeading.test(line)) return 'heading';
  if (kRule.test(line)) return 'rule';
  if (kItem.test(line)) return 'list';
  if (kQuote.test(line)) return 'quote';
  if (line.includes('|') && lines[at + 1] !== undefined && isTableRule(lines[at + 1])) return 'table';
  return 'text';
}

const cellsOf = (line) => line.trim().replace(/^\||\|$/g, '').split('|', kMostColumns).map((cell) => cell.trim());
const isTableRule = (line) => line.includes('-') && line.includes('|') && cellsOf(line).length > 1
  && cellsOf(line).every((cell) => /^:?-+:?$/.test(cell));

// How many lines belong to the block that begins at the first one.
function blockLines(kind, lines) {
  if (kind === 'heading' || kind === 'rule') return 1;
  let n = 1;
  for (; n < lines.length; ++n) {
    const line = lines[n];
    if (kind === 'text' && (line.trim() === '' || kindOf(lines, n) !== 'text')) break;
    if (kind === 'quote' && !kQuote.test(line)) break;
    if (kind === 'table' && !line.includes('|')) break;
    if (kind === 'list' && line.trim() !== '' && !kItem.test(line) && !/^\s{2,}/.test(line) &&
        (lines[n - 1].trim() === '' || kindOf(lines, n) !== 'text')) break;
  }
  return n;
}

// Without the marks that may close a heading.
function titleOf(text) {
  let end = text.trimEnd().length;
  while (end > 0 && text[end - 1] === '#') --end;
  return text.slice(0, end).trimEnd();
}

function makeBlock(kind, lines, depth = 0) {
  if (kind === 'heading') {
    const [, marks, text] = kHeading.exec(lines[0]);
    return h(`h${Math.min(6, marks.length + 2)}`, null, inline(titleOf(text ?? '')));
  }
  if (kind === 'rule') return h('hr');
  if (kind === 'quote') {
    const node = h('blockquote');
    const inner = new MarkdownStream(node, depth + 1);
    inner.text = lines.map((line) => kQuote.exec(line)?.[1] ?? line).join('\n');
    inner.finish();  // at once: each level would be drawn twice as often as the one around it
    return node;
  }
  if (kind === 'table') return makeTable(lines);
  return makeList(lines.filter((line, i) => line.trim() !== '' || i < lines.length - 1), 0).node;
}

function makeList(lines, from) {
  const [, indent, mark] = kItem.exec(lines[from]);
  const ordered = /\d/.test(mark);
  const list = h(ordered ? 'ol' : 'ul', ordered && mark !== '1.' ? { start: parseInt(mark, 10) } : null);
  let at = from;
  while (at < lines.length) {
    const item = kItem.exec(lines[at]);
    if (!item || item[1].length < indent.length) break;
    if (item[1].length > indent.length + 1) {  // of a list inside
      const inner = makeList(lines, at);
      (list.lastElementChild ?? list).append(inner.node);
      at = inner.at;
      continue;
    }
    const text = [item[3]];
    while (++at < lines.length && !kItem.test(lines[at])) text.push(lines[at].trim());
    list.append(h('li', null, inline(text.join('\n').trimEnd())));
  }
  return { node: list, at: Math.max(at, from + 1) };
}

function makeTable(lines) {
  const row = (line) => h('tr', null, cellsOf(line).map((cell) => h('td', null, inline(cell))));
  const body = h('tbody', null, lines.slice(2).map(row));
  const node = h('div', { class: 'table' }, h('table', null,
    h('thead', null, h('tr', null, cellsOf(lines[0]).map((cell) => h('th', null, inline(cell))))), body));
  node.grow = (now) => {  // only its last row may have changed
    body.lastElementChild?.remove();
    for (let i = body.childElementCount + 2; i < now.length; ++i) body.append(row(now[i]));
  };
  return node;
}

// A block of code that grows by pieces, each of which is laid out alone.
function openCode(parent, mark, language) {
  const code = h('code');
  const button = h('button', { type: 'button', class: 'tiny', onclick: () => copy(code.textContent, button) }, 'Copy');
  parent.append(h('figure', { class: 'code' },
    h('figcaption', null, h('span', null, language || 'code'), button),
    h('pre', { tabindex: '0' }, code)));
  let piece = null;
  return {
    mark,
    add(line) {
      if (piece === null || piece.length > kLongCode) {
        piece = document.createTextNode('');
        code.append(h('span', { class: 'piece' }, piece));
      }
      piece.appendData(line);
    },
  };
}

// ---- within a block ----

const kReach = 1000;
const within = `{0,${kReach}}`;
const marked = (name) => `(?<${name}>(?=\\S)[\\s\\S]${within}?\\S)`;
const kInline = new RegExp([
  `(?<!\`)(?<code>\`{1,8})(?!\`)(?<coded>[\\s\\S]${within}?[^\`])\\k<code>(?!\`)`,
  `\\*\\*${marked('bold')}\\*\\*`,
  `__${marked('bold2')}__(?!\\w)`,
  `~~${marked('gone')}~~`,
  `\\*(?<slant>(?=[^\\s*])[^*\\n]${within}?[^\\s*]|[^\\s*])\\*`,
  `(?<!\\w)_(?<slant2>(?=[^\\s_])[^_\\n]${within}?[^\\s_]|[^\\s_])_(?!\\w)`,
  `!\\[(?<picture>[^\\[\\]\\n]${within})\\]\\([^()\\n]${within}\\)`,
  `\\[(?<label>[^\\[\\]\\n]{1,${kReach}})\\]\\((?<url>(?:[^()\\s]|\\([^()\\s]{0,200}\\)){1,${kReach}})(?:\\s[^()\\n]${within})?\\)`,
  `(?<bare>https?://[^\\s<>()\`"']${within}[^\\s<>()\`"'.,;:!?])`,
  '\\\\(?<escaped>[\\\\`*_{}\\[\\]()#+\\-.!|>~])',
].join('|'), 'g');

export function inline(text, depth = 0) {
  const nodes = [];
  let from = 0;
  const plain = (to) => { if (to > from) nodes.push(...withBreaks(text.slice(from, to))); };
  for (const match of depth < 6 ? text.matchAll(kInline) : []) {
    plain(match.index);
    from = match.index + match[0].length;
    const g = match.groups;
    const wrap = (name, inner) => h(name, null, inline(inner, depth + 1));
    if (g.coded !== undefined) nodes.push(h('code', null, g.coded));
    else if (g.bold ?? g.bold2) nodes.push(wrap('strong', g.bold ?? g.bold2));
    else if (g.gone) nodes.push(wrap('s', g.gone));
    else if (g.slant ?? g.slant2) nodes.push(wrap('em', g.slant ?? g.slant2));
    else if (g.picture !== undefined) nodes.push(h('span', { class: 'picture' }, `picture: ${g.picture || 'without a name'}`));
    else if (g.label) nodes.push(...link(g.label, g.url, depth));
    else if (g.bare) nodes.push(...link(null, g.bare, depth));
    else if (g.escaped) nodes.push(g.escaped);
  }
  plain(text.length);
  return nodes;
}

const withBreaks = (text) => text.split(/(?<! ) {2,}\n/).flatMap((line, i) => (i === 0 ? [line] : [h('br'), line]));

// Shows where it goes. Anything but http and https stays text.
function link(label, address, depth) {
  let url = null;
  try {
    url = new URL(address);
  } catch { /* not absolute */ }
  if (url === null || !['http:', 'https:'].includes(url.protocol)) {
    return label === null ? [address] : [...inline(label, depth + 1), ` (${address})`];
  }
  const a = h('a', { href: url.href, target: '_blank', rel: 'noopener noreferrer nofollow', title: url.href },
    label === null ? address : inline(label, depth + 1));
  return label === null || label.includes(url.host) ? [a] : [a, h('small', { class: 'muted' }, ` (${url.host})`)];
}

// Conversations, kept in the browser's storage: each a tree of messages of which one path is shown.
// A talk is an entry of its own, so that two tabs do not write over each other's.

const kPrefix = 'skein.talk.';
const kMaxTalks = 100;

export const newId = () => [...crypto.getRandomValues(new Uint8Array(8))].map((b) => b.toString(16).padStart(2, '0')).join('');

export const newTalk = () => ({ id: newId(), title: '', at: Date.now(), nodes: {}, chosen: {} });

export function listTalks() {
  const talks = [];
  for (let i = 0; i < localStorage.length; ++i) {
    const name = localStorage.key(i);
    if (!name.startsWith(kPrefix)) continue;
    try {
      const { id, title, at } = JSON.parse(localStorage.getItem(name));
      talks.push({ id, title, at });
    } catch {
      localStorage.removeItem(name);
    }
  }
  return talks.sort((a, b) => b.at - a.at);
}

// Null where what is kept is no talk: whatever else was served from this address may have written it.
export function loadTalk(id) {
  try {
    const talk = JSON.parse(localStorage.getItem(kPrefix + id));
    const isTalk = talk.id === id && Object.values(talk.chosen).every((other) => typeof other === 'string')
      && Object.entries(talk.nodes).every(([name, node]) => node.id === name && typeof node.role === 'string' && typeof node.content === 'string');
    return isTalk ? talk : null;
  } catch {
    return null;
  }
}

export const dropTalk = (id) => localStorage.removeItem(kPrefix + id);

// Without what is too large to keep: probabilities. Room is made by forgetting the oldest talks.
export function saveTalk(talk) {
  const kept = { ...talk, nodes: Object.fromEntries(Object.entries(talk.nodes).map(([id, node]) => [id, { ...node, tokens: undefined }])) };
  const text = JSON.stringify(kept);
  for (const old of listTalks().slice(kMaxTalks)) dropTalk(old.id);
  while (true) {
    try {
      localStorage.setItem(kPrefix + talk.id, text);
      return;
    } catch {
      const oldest = listTalks().filter((other) => other.id !== talk.id).at(-1);
      if (oldest === undefined) return;  // it alone is too large; it stays in memory
      dropTalk(oldest.id);
    }
  }
}

export function addNode(talk, parent, node) {
  const added = { id: newId(), parent: parent?.id ?? 'root', at: Date.now(), ...node };
  talk.nodes[added.id] = added;
  talk.chosen[added.parent] = added.id;
  return added;
}

export const siblings = (talk, node) =>
  Object.values(talk.nodes).filter((other) => other.parent === node.parent).sort((a, b) => a.at - b.at);

export const choose = (talk, node) => { talk.chosen[node.parent] = node.id; };

export function path(talk, until) {
  const nodes = [];
  const most = Object.keys(talk.nodes).length;  // a path that comes back to itself has an end, too
  for (let id = talk.chosen.root; id !== undefined && talk.nodes[id] && nodes.length < most; id = talk.chosen[id]) {
    nodes.push(talk.nodes[id]);
    if (id === until?.id) break;
  }
  return nodes;
}

// What the server is sent for them.
export function messagesOf(nodes, system) {
  const messages = system ? [{ role: 'system', content: system }] : [];
  for (const node of nodes) {
    if (node.role === 'tool') messages.push({ role: 'tool', tool_call_id: node.call, content: node.content });
    else if (node.calls?.length) messages.push({ role: 'assistant', content: node.content || null, tool_calls: node.calls });
    else messages.push({ role: node.role, content: node.content });
  }
  return messages;
}

// Batches and files: upload, begin, progress, errors by line, download, cancel.
import { getJson, onKey, postJson, remove, request } from './api.js';
import { ago, bytes, confirmed, count, h, problem, show, title } from './dom.js';

const kShownErrors = 20;

async function download(id, name) {
  const response = await request('GET', `/v1/files/${encodeURIComponent(id)}/content`);
  const url = URL.createObjectURL(await response.blob());
  const a = h('a', { href: url, download: name });
  document.body.append(a);
  a.click();
  a.remove();
  setTimeout(() => URL.revokeObjectURL(url), 10_000);
}

// The first errors of a file of lines, with the line that they stand for.
async function errorsOf(id) {
  const text = await (await request('GET', `/v1/files/${encodeURIComponent(id)}/content`)).text();
  return text.split('\n').filter(Boolean).slice(0, kShownErrors).map((line) => {
    const { custom_id: custom, response, error } = JSON.parse(line);
    return { custom, message: error?.message ?? response?.body?.error?.message ?? `status ${response?.status_code}` };
  });
}

function batchCard(batch, { act, look }) {
  const counts = batch.request_counts ?? { total: 0, completed: 0, failed: 0 };
  const share = (n) => `${counts.total ? (100 * n) / counts.total : 0}%`;
  const done = h('i');
  const failed = h('i', { class: 'bad' });
  done.style.width = share(counts.completed);
  failed.style.width = share(counts.failed);
  const errors = h('div');
  const isOpen = ['validating', 'in_progress', 'finalizing'].includes(batch.status);
  return h('section', { class: 'card' },
    h('div', { class: 'row' }, h('code', { class: 'grow' }, batch.id), h('span', { class: `pill ${batch.status === 'completed' ? 'good' : isOpen ? 'hot' : batch.status === 'failed' ? 'bad' : ''}` }, batch.status)),
    h('p', { class: 'muted num' }, `${batch.endpoint} · ${count(counts.completed)} of ${count(counts.total)} lines${counts.failed ? `, ${count(counts.failed)} failed` : ''} · begun ${ago(batch.created_at * 1000)}`),
    h('div', { class: 'bar', role: 'progressbar', 'aria-label': 'Lines that have ended', 'aria-valuemin': 0, 'aria-valuemax': counts.total, 'aria-valuenow': counts.completed + counts.failed }, done, failed),
    (batch.errors?.data ?? []).slice(0, kShownErrors).map((error) => h('p', { class: 'problem' }, `${error.line ? `line ${error.line}: ` : ''}${error.message}`)),
    h('div', { class: 'row end' },
      batch.output_file_id && h('button', { onclick: () => act(() => download(batch.output_file_id, `${batch.id}.jsonl`)) }, 'Answers'),
      batch.error_file_id && h('button', { onclick: () => act(async () => show(errors, (await errorsOf(batch.error_file_id)).map(({ custom, message }) => h('p', { class: 'problem' }, `${custom}: ${message}`)))) }, 'Errors by line'),
      batch.error_file_id && h('button', { onclick: () => act(() => download(batch.error_file_id, `${batch.id}-errors.jsonl`)) }, 'Download errors'),
      isOpen && h('button', { class: 'danger', onclick: () => act(async () => { await postJson(`/v1/batches/${encodeURIComponent(batch.id)}/cancel`, {}); look(); }) }, 'Cancel')), errors);
}

function fileRow(file, { act, look, begin }) {
  return h('tr', null, h('td', { class: 'name' }, file.filename, h('br'), h('small', { class: 'muted' }, h('code', null, file.id))), h('td', null, file.purpose), h('td', { class: 'num' }, bytes(file.bytes)), h('td', { class: 'tight' }, ago(file.created_at * 1000)),
    h('td', { class: 'tight' }, file.purpose === 'batch' && h('button', { class: 'tiny', onclick: () => begin(file) }, 'Begin a batch'),
      h('button', { class: 'tiny', onclick: () => act(() => download(file.id, file.filename)) }, 'Download'),
      h('button', { class: 'tiny danger', onclick: () => act(async () => { if (await confirmed(`Delete ${file.filename}?`)) { await remove(`/v1/files/${encodeURIComponent(file.id)}`); look(); } }) }, 'Delete')));
}

export function open(main) {
  const trouble = h('div');
  const batches = h('div');
  const files = h('div');
  const endpoint = h('select', { 'aria-label': 'Endpoint' }, ['/v1/chat/completions', '/v1/completions', '/v1/embeddings'].map((path) => h('option', null, path)));
  const input = h('input', { type: 'file', accept: '.jsonl,.json,.txt', 'aria-label': 'A file of requests', onchange: () => upload(input.files[0]) });
  const progress = h('div');
  const act = async (work) => { show(trouble); try { await work(); } catch (error) { show(trouble, problem(error)); } };
  const begin = (file) => act(async () => { await postJson('/v1/batches', { input_file_id: file.id, endpoint: endpoint.value, completion_window: '24h' }); look(); });
  const upload = (file) => file && act(async () => {
    show(progress, h('div', { class: 'bar busy', role: 'progressbar', 'aria-label': 'Uploading' }, h('i')));
    const form = new FormData();
    form.append('purpose', 'batch');
    form.append('file', file);
    try {
      await request('POST', '/v1/files', form, { raw: true });
    } finally {
      show(progress);
      input.value = '';
    }
    look();
  });
  const zone = h('div', { class: 'drop-zone' }, h('p', null, 'Drop a file of lines ', h('code', null, '{"custom_id", "method", "url", "body"}'), ' here, or choose one.'), input, progress);
  zone.addEventListener('dragover', (event) => { event.preventDefault(); zone.classList.add('over'); });
  zone.addEventListener('dragleave', () => zone.classList.remove('over'));
  zone.addEventListener('drop', (event) => { event.preventDefault(); zone.classList.remove('over'); upload(event.dataTransfer.files[0]); });
  async function look() {
    try {
      const [jobs, stored] = await Promise.all([getJson('/v1/batches?limit=20'), getJson('/v1/files?limit=50')]);
      const does = { act, look, begin };
      show(batches, jobs.data.length ? jobs.data.map((batch) => batchCard(batch, does)) : h('p', { class: 'note' }, 'No batches yet.'));
      show(files, stored.data.length ? h('div', { class: 'table' }, h('table', { class: 'wide' }, h('thead', null, h('tr', null, ['File', 'Purpose', 'Size', 'Made', 'Actions'].map((name) => h('th', { class: name === 'Size' ? 'num' : '', scope: 'col' }, name)))), h('tbody', null, stored.data.map((file) => fileRow(file, does)))))
        : h('p', { class: 'note' }, 'No files yet.'));
    } catch (error) {
      show(trouble, problem(error));
    }
  }
  show(main, h('div', { class: 'page' }, title('Batches', 'Many requests in one file, for work that can wait. They survive a restart.'), trouble,
    h('section', { class: 'card' }, zone, h('div', { class: 'row end' }, h('span', { class: 'muted' }, 'New batches go to'), h('div', null, endpoint))), batches, h('section', { class: 'card' }, h('h2', null, 'Files'), files)));
  const timer = setInterval(() => { if (!document.hidden && !batches.querySelector('.problem') && !batches.contains(document.activeElement) && !files.contains(document.activeElement)) look(); }, 2000);
  const end = onKey(look);
  look();
  return () => { clearInterval(timer); end(); };
}

// The frame around the views: which one is open, the key, the theme, and whether the server is well.
import { hasKey, onKeyWanted, useKey } from './api.js';

const views = {
  chat: () => import('./chat.js'), live: () => import('./live.js'), requests: () => import('./requests.js'),
  models: () => import('./models.js'), batches: () => import('./batches.js'), keys: () => import('./keys.js'),
  playground: () => import('./playground.js'),
};
const main = document.getElementById('view');
const side = document.getElementById('side-more');
const links = document.querySelectorAll('nav a');

let close = null;
let opened = '';
async function route() {
  const name = location.hash.slice(1).split('/')[0] || 'chat';
  const view = views[name] ? name : 'chat';
  if (view === opened) return;
  opened = view;
  for (const link of links) {
    if (link.hash === `#${view}`) link.setAttribute('aria-current', 'page');
    else link.removeAttribute('aria-current');
  }
  document.title = `${view[0].toUpperCase()}${view.slice(1)} · skein`;
  const module = await views[view]();
  if (opened !== view) return;  // somebody was faster
  close?.();
  close = module.open(main, side);
  main.scrollTop = 0;
}
addEventListener('hashchange', route);

// ---- the key ----

const dialog = document.getElementById('key-dialog');
const input = document.getElementById('key-input');
const note = document.getElementById('key-note');
const kNote = note.textContent;
function askForKey(why) {
  if (dialog.open) return;
  note.textContent = why ? `${why} ${kNote}` : kNote;
  input.value = '';
  dialog.showModal();
}
dialog.addEventListener('close', () => {
  if (dialog.returnValue === 'use' && input.value.trim()) useKey(input.value.trim());
  input.value = '';
});
input.addEventListener('keydown', (event) => {
  if (event.key !== 'Enter') return;
  event.preventDefault();
  dialog.close('use');
});
onKeyWanted(askForKey);
document.getElementById('key-button').addEventListener('click', () => askForKey(hasKey() ? 'Another key?' : ''));

// ---- light and dark ----

const kThemes = ['', 'light', 'dark'];
function setTheme(theme) {
  if (theme) document.documentElement.dataset.theme = theme;
  else delete document.documentElement.dataset.theme;
}
let theme = localStorage.getItem('skein.theme') ?? '';
setTheme(theme);
document.getElementById('theme-button').addEventListener('click', () => {
  const isDark = theme ? theme === 'dark' : matchMedia('(prefers-color-scheme: dark)').matches;
  theme = kThemes[isDark ? 1 : 2];
  localStorage.setItem('skein.theme', theme);
  setTheme(theme);
});

// ---- is it well? ----

const state = document.getElementById('state');
async function look() {
  if (document.hidden) return;
  try {
    const response = await fetch('/health', { cache: 'no-store' });
    const { status } = await response.json();
    state.textContent = status === 'ok' ? 'ready' : status;
    state.className = `state ${response.ok ? 'good' : 'bad'}`;
  } catch {
    state.textContent = 'not reached';
    state.className = 'state bad';
  }
}
setInterval(look, 5000);
document.addEventListener('visibilitychange', look);
look();
route();

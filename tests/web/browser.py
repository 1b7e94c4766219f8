"""Chromium of the system, driven by Playwright, and what every test of the console wants to know of a page."""
import contextlib
import json
import os
import pathlib
import shutil
import sys
import time
import unittest

VENV = pathlib.Path(__file__).resolve().parents[2] / "build/venv"
if (VENV / "bin/python").exists() and pathlib.Path(sys.prefix) != VENV:
    os.execv(VENV / "bin/python", [str(VENV / "bin/python"), *sys.argv])

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "apps"))
import serving  # noqa: E402  (tests/apps)

try:
    from playwright.sync_api import sync_playwright
except ImportError:
    sync_playwright = None

CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser")
needs_browser = serving.needs(sync_playwright is not None and CHROMIUM is not None,
                              "Playwright or Chromium is not there; `make test` fetches both")


@contextlib.contextmanager
def browser():
    with sync_playwright() as playwright:
        found = playwright.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage"])
        try:
            yield found
        finally:
            found.close()


class Tab:
    """A page that notes what must not happen: errors in the console, requests to other hosts, dialogs."""

    def __init__(self, found, url, max_tokens=48, seed=None, **context):
        self.url = url
        self.errors, self.foreign, self.bytes = [], [], 0
        self.context = found.new_context(**context)
        self.context.set_default_timeout(20_000)
        self.page = self.context.new_page()
        if max_tokens:  # a small model may not know when to end
            kept = json.dumps({"max_tokens": max_tokens, "logprobs": True, **({"seed": seed} if seed else {})})
            self.page.add_init_script(f"localStorage.getItem('skein.settings') ?? localStorage.setItem('skein.settings', {json.dumps(kept)})")
        self.page.on("console", lambda message: message.type == "error" and self.errors.append(message.text))
        self.page.on("pageerror", lambda error: self.errors.append(str(error)))
        self.page.on("dialog", lambda dialog: (self.errors.append(f"dialog: {dialog.message}"), dialog.dismiss()))
        self.page.on("request", lambda request: self.foreign.append(request.url) if not request.url.startswith((url, "blob:", "data:")) else None)

    def open(self, view=""):
        self.page.goto(f"{self.url}/{view and '#' + view}")
        return self.page

    def box(self):
        """The message box: the first textarea that can be seen."""
        return self.page.locator("textarea:visible").first

    def say(self, text):
        self.box().fill(text)
        self.box().press("Enter")

    def last_answer(self):
        return self.page.locator("article.assistant").last

    def wait(self, expression, seconds=20):
        """Until it is true. Playwright's own waiting evaluates texts in the page, which the page's policy forbids."""
        until = time.monotonic() + seconds
        while not self.page.evaluate(expression):
            if time.monotonic() > until:
                raise AssertionError(f"{seconds} s were not enough for: {expression}")
            self.page.wait_for_timeout(20)

    def wait_for_end(self, seconds=30):
        self.wait("!document.querySelector('.writing') && document.querySelector('article.assistant') !== null", seconds)
        return self.last_answer()

    def close(self):
        self.context.close()


FIGURES = {"pages": 0, "first": 0, "weight": 0, "paint": 0, "task": 0, "looked": 0}
# What a page says whose server ends before it.
GONE = ("net::ERR_CONNECTION_REFUSED", "net::ERR_CONNECTION_RESET", "net::ERR_INCOMPLETE_CHUNKED_ENCODING", "net::ERR_EMPTY_RESPONSE")


class BrowserTest(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.held = browser()
        cls.chromium = cls.held.__enter__()

    @classmethod
    def tearDownClass(cls):
        cls.held.__exit__(None, None, None)

    def tab(self, url, allowed=(), **context):
        """A page that must stay clean until the test ends; `allowed` are words of errors that belong to the test."""
        tab = Tab(self.chromium, url, **context)
        FIGURES["pages"] += 1
        self.addCleanup(self.assert_clean, tab, (*allowed, *GONE))
        self.addCleanup(tab.close)
        return tab

    def assert_clean(self, tab, allowed=()):
        self.assertEqual([error for error in tab.errors if not any(word in error for word in allowed)], [])
        self.assertEqual(tab.foreign, [])

"""Every view of the console in a browser, against a real server with the default model, and against answers that no model gives on demand.

    SKEIN_TEST_BINARY=build/skein python3 tests/web/console_test.py      (`make console`)

The last line says what was measured; whatever is over its limit fails. Every page of every test must leave the browser's console without errors
and ask no other host. With SKEIN_PICTURES=1 the pictures of docs/img are taken anew; SKEIN_SHOTS=<folder> keeps one of every view, to be looked at.
"""
import json
import os
import pathlib
import re
import sys
import tempfile
import time
import unittest

from browser import FIGURES, BrowserTest, needs_browser, serving
from pictures import PICTURES, PictureTest  # noqa: F401  (run with the others)
from replay import Replay, answer_frames

SHOTS = os.environ.get("SKEIN_SHOTS")
WEIGHT, PAINT_MS, LONG_TASK_MS, TOKENS, SECONDS, FIRST_S = 300_000, 500, 50, 10_000, 240, 10
VIEWS = ("chat", "live", "requests", "models", "batches", "keys", "playground")


@needs_browser
@serving.needs_model
class OpenServerTest(BrowserTest):
    """A server without keys, on loopback, as `make serve` starts it."""

    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        cls.server = serving.Server()
        cls.url = f"http://127.0.0.1:{cls.server.port}"

    @classmethod
    def tearDownClass(cls):
        cls.server.close()
        super().tearDownClass()

    def test_weight_and_first_paint(self):
        best = None
        for _ in range(3):
            tab = self.tab(self.url)
            page = tab.open()
            tab.box().wait_for()
            page.wait_for_timeout(300)
            paint = page.evaluate("performance.getEntriesByType('paint').find((e) => e.name === 'first-contentful-paint')?.startTime")
            weight = page.evaluate("[...performance.getEntriesByType('resource'), ...performance.getEntriesByType('navigation')]"
                                   ".filter((e) => !e.name.includes('/v1/') && !e.name.includes('/health')).reduce((sum, e) => sum + e.encodedBodySize, 0)")
            best = min(best or paint, paint)
        whole = sum(path.stat().st_size for path in (pathlib.Path(__file__).resolve().parents[2] / "web").iterdir())
        print(f"page: {weight:,} bytes to the first view, {whole:,} with all views; first paint {best:.0f} ms")
        FIGURES.update(weight=whole, paint=best)
        self.assertLess(whole, WEIGHT)
        self.assertLess(best, PAINT_MS)

    def test_streams_stops_edits_and_keeps_branches(self):
        tab = self.tab(self.url)
        page = tab.open()
        page.get_by_role("button", name="Settings").click()
        page.get_by_label("Temperature").fill("0")
        page.get_by_label("Max tokens").fill("400")
        page.get_by_role("button", name="Settings").click()
        tab.say("Tell me a very long story about a ball of yarn.")
        grown = "document.querySelector('article.assistant:last-of-type .said')?.textContent.length"
        tab.wait(f"{grown} > 20")
        before = page.evaluate(grown)
        tab.wait(f"{grown} > {before}")  # it streams
        page.get_by_role("button", name="Stop").click()
        tab.wait_for_end()
        self.assertTrue(self.server.settle(self.server.is_idle, 20), "the server goes on with what nobody wants")
        self.assertIn("tok/s", tab.last_answer().inner_text())
        tab.last_answer().get_by_role("button", name="Retry").click()
        page.get_by_text("2/2").wait_for()
        page.get_by_role("button", name="Stop").click()
        tab.wait_for_end()
        page.get_by_role("button", name="Earlier branch").click()
        page.get_by_text("1/2").wait_for()
        page.locator("article.user").hover()
        page.get_by_role("button", name="Edit").click()
        page.get_by_label("Edit the message").fill("Say one word.")
        page.get_by_label("Edit the message").press("Enter")
        tab.wait_for_end()
        self.assertEqual(page.locator("article.user .said").inner_text(), "Say one word.")
        page.reload()
        page.locator(".talks button").first.click()
        self.assertEqual(page.locator("article.user .said").inner_text(), "Say one word.")
        tab.last_answer().wait_for()

    def test_token_probabilities_and_copies(self):
        tab = self.tab(self.url, permissions=["clipboard-read", "clipboard-write"])
        page = tab.open()
        tab.say("What is the capital of France?")
        tab.wait_for_end(60)
        tab.last_answer().get_by_role("button", name="Tokens").click()
        page.locator(".tokens span").first.hover()
        self.assertRegex(page.locator("#tip").inner_text(), r"\d %")
        tab.last_answer().get_by_role("button", name="curl").click()
        tab.wait("navigator.clipboard.readText().then((text) => text.startsWith('curl'))")
        text = page.evaluate("navigator.clipboard.readText()")
        body = json.loads(re.search(r"-d '(.*)'\n$", text, re.S)[1].replace("'\\''", "'"))
        self.assertEqual(body["messages"][-1]["content"], "What is the capital of France?")
        tab.last_answer().get_by_role("button", name="Python").click()
        tab.wait("navigator.clipboard.readText().then((text) => text.startsWith('import os'))")
        compile(page.evaluate("navigator.clipboard.readText()"), "copied", "exec")

    def test_two_tabs_and_the_live_view(self):
        watching, asking = self.tab(self.url), self.tab(self.url, max_tokens=None)
        page = watching.open("live")
        asking.open()
        asking.say("Tell me a very long story about a ball of yarn.")
        page.locator(".bead").first.wait_for()
        page.locator(".bead").first.hover()
        self.assertIn("chatcmpl-", page.locator("#tip").inner_text())
        requests = self.tab(self.url)
        other = requests.open("requests")
        other.get_by_role("button", name="Cancel").first.click()
        asking.wait_for_end()
        other.locator("tbody").get_by_text("cancelled").first.wait_for()
        self.assertIn("decode", other.locator("main").inner_text())

    def test_a_script_that_the_model_is_made_to_say_stays_text(self):
        tab = self.tab(self.url)
        said = "<script>alert(1)</script><img src=x onerror=alert(2)>"
        tab.page.route("**/v1/chat/completions", lambda route: route.continue_(
            post_data=json.dumps({**route.request.post_data_json, "regex": re.sub(r"([()])", r"\\\1", said)})))
        tab.open()
        tab.say("Anything.")
        answer = tab.wait_for_end()
        self.assertIn(said, answer.locator(".said").inner_text())
        self.assertEqual(answer.locator("script, img").count(), 0)

    def test_models_batches_and_playground(self):
        tab = self.tab(self.url)
        page = tab.open("models")
        page.locator("main .pill", has_text="ready").wait_for()
        self.assertIn("weights", page.locator("main").inner_text())
        page.get_by_role("link", name="Batches").click()
        lines = [{"custom_id": f"l{i}", "method": "POST", "url": "/v1/chat/completions",
                  "body": {"messages": [{"role": "user", "content": "Hi"}], "max_tokens": 4, **({"temperature": "hot"} if i == 2 else {})}} for i in range(3)]
        page.get_by_label("A file of requests").set_input_files(
            {"name": "night.jsonl", "mimeType": "application/jsonl", "buffer": "\n".join(map(json.dumps, lines)).encode()})
        page.get_by_role("button", name="Begin a batch").first.click()
        page.locator("main h1").click()
        page.locator("main .pill", has_text="completed").wait_for()
        page.get_by_role("button", name="Errors by line").click()
        page.get_by_text("l2:").wait_for()
        with page.expect_download() as download:
            page.get_by_role("button", name="Answers").click()
        self.assertEqual(len(pathlib.Path(download.value.path()).read_text().splitlines()), 2)
        page.get_by_role("link", name="Playground").click()
        page.get_by_text("all of it is enforced").wait_for()
        page.get_by_role("button", name="relaxed").click()
        page.get_by_text("/properties/numbers/contains").wait_for()
        page.get_by_role("button", name="city").click()
        page.get_by_text("all of it is enforced").wait_for()
        page.get_by_role("button", name="Answer").click()
        page.get_by_text("whole, in").wait_for()
        self.assertIn("population", json.loads(page.locator("pre.out").inner_text()))

    def test_accessible(self):
        from axe_playwright_python.sync_playwright import Axe
        bad = []
        for scheme, width in (("light", 1280), ("dark", 1280), ("light", 390)):
            tab = self.tab(self.url, color_scheme=scheme, viewport={"width": width, "height": 800})
            for view in VIEWS:
                page = tab.open(view)
                page.locator("main h1, .chat").first.wait_for()
                if view == "chat":
                    tab.say("Hello!")
                    tab.wait("document.querySelector('article.assistant .said')?.textContent.length > 0")
                    page.keyboard.press("Escape")
                    tab.wait_for_end()
                page.wait_for_timeout(700)
                if SHOTS:
                    page.screenshot(path=pathlib.Path(SHOTS, f"{view}-{scheme}-{width}.png"))
                found = Axe().run(page).response["violations"]
                bad += [f"{view} {scheme} {width}: {rule['id']} {rule['nodes'][0]['html'][:120]}" for rule in found if rule["impact"] in ("serious", "critical")]
                FIGURES["looked"] += 1
        self.assertEqual(bad, [])


@needs_browser
@serving.needs_model
class StartTest(BrowserTest):
    def test_first_answer(self):
        """From the start of a server that has its model to the first words on the page."""
        began = time.monotonic()
        with serving.Server() as server:
            tab = self.tab(f"http://127.0.0.1:{server.port}")
            tab.open()
            tab.wait("document.querySelector('.chat select')?.value")
            tab.say("Say hello in three words.")
            tab.wait("document.querySelector('article.assistant .said')?.textContent.length > 0")
            FIGURES["first"] = time.monotonic() - began
            self.assertLess(FIGURES["first"], FIRST_S)


@needs_browser
@serving.needs_model
class KeyTest(BrowserTest):
    """A server with keys: it is asked for, kept in memory alone, and its end is noticed."""

    def test_a_key_that_is_revoked_while_the_page_is_open(self):
        with tempfile.TemporaryDirectory() as folder:
            state = pathlib.Path(folder, "state")
            admin, user = serving.add_key(state, "root", "--admin"), serving.add_key(state, "guest")
            with serving.Server(state_dir=state, wait=False) as server:
                server.key = admin
                server.wait_for("/health", 200)
                url = f"http://127.0.0.1:{server.port}"
                guest, root = (self.tab(url, allowed=("401",)) for _ in range(2))
                for tab, key in ((guest, user), (root, admin)):
                    page = tab.open()
                    page.get_by_label("API key").fill(key)
                    page.get_by_label("API key").press("Enter")
                    tab.wait("document.querySelector('.chat select')?.value")
                    self.assertEqual(page.evaluate("JSON.stringify([localStorage, sessionStorage, document.cookie])").count(key), 0)
                guest.say("Hello!")
                guest.wait_for_end(60)
                guest.page.get_by_role("link", name="Live").click()
                guest.page.get_by_text("own requests, totals of all").wait_for()
                root.page.get_by_role("link", name="Keys").click()
                root.page.get_by_label("Name").fill("fresh")
                root.page.get_by_role("button", name="Make").click()
                self.assertIn("sk-", root.page.locator(".secret").inner_text())
                card = root.page.locator("section.card", has_text="guest").last
                card.get_by_role("button", name="Revoke").click()
                root.page.get_by_role("button", name="Yes").click()
                guest.page.get_by_text("The key is not valid, or no longer.").wait_for()
                root.page.get_by_role("link", name="Models").click()
                for button, state in (("Unload", "unloaded"), ("Load", "ready")):
                    root.page.get_by_role("button", name=button, exact=True).click()
                    root.page.locator("main .pill", has_text=re.compile(f"^{state}$")).wait_for()


@needs_browser
class ReplayTest(BrowserTest):
    """Answers that were made beforehand."""

    def test_a_load_shows_how_far_it_is(self):
        share = [None]  # at the moment

        def frames():
            for _ in range(1000):
                model = {"id": "large", "state": "loading", "pinned": False, "leases": 0, "failed": False, **({"loaded_share": share[0]} if share[0] else {})}
                yield {"object": "live", "at_ms": 1000, "scope": "all", "admin": True, "models": [model], "requests": [], "watchers": 1}

        with Replay(live=frames) as server:
            page = self.tab(server.url).open("models")
            bar = page.get_by_role("progressbar", name="loading large")
            bar.wait_for()
            self.assertIsNone(bar.get_attribute("aria-valuenow"), "nobody knows yet")
            share[0] = 0.25
            page.locator("[role=progressbar][aria-valuenow='25']").wait_for()
            share[0] = 0.75
            page.get_by_text("75 % of its weights").wait_for()
            drawn = page.evaluate("[document.querySelector('[role=progressbar]')].map((bar) => bar.firstChild.offsetWidth / bar.offsetWidth)[0]")
            self.assertAlmostEqual(drawn, 0.75, delta=0.01)

    def test_what_a_model_says_cannot_act(self):
        evil = ("<script>window.hit=1</script>\n\n<img src=x onerror=\"window.hit=2\">\n\n[link](javascript:window.hit=3) "
                "![p](http://127.0.0.1:1/p.png) [l](data:text/html,<script>window.hit=4</script>) `<b>` **<i onclick=window.hit=5>x</i>**\n\n"
                "```html\n<script>window.hit=6</script>\n```\n\n> <iframe src=//127.0.0.1:1></iframe>\n\n| <style>*{display:none}</style> | b |\n|---|---|\n| <svg onload=window.hit=7> | d |\n")
        with Replay(lambda body: answer_frames(re.findall(r".{1,7}", evil, re.S), thoughts=[evil], calls=[(evil, evil)])) as server:
            tab = self.tab(server.url)
            page = tab.open()
            tab.say(evil)
            answer = tab.wait_for_end()
            page.wait_for_timeout(300)
            self.assertIsNone(page.evaluate("window.hit ?? null"))
            self.assertEqual(page.locator("main script, main img, main iframe, main style, main svg, main [onclick]").count(), 0)
            self.assertEqual(answer.locator("a").count(), 0)
            self.assertIn("<script>window.hit=1</script>", answer.inner_text())
            self.assert_clean(tab)

    def test_a_fence_that_comes_slower_than_it_is_drawn(self):
        pieces = ["Look:\n\n", "``", "`", "py", "thon", "\n", "x = 1\n", "``", "`", "\n\n", "The ", "end"]
        with Replay(lambda body: answer_frames(pieces), pause_s=0.1) as server:
            tab = self.tab(server.url)
            tab.open()
            tab.say("Go")
            answer = tab.wait_for_end()
            self.assertEqual(answer.locator("figure.code code").inner_text(), "x = 1\n")
            self.assertEqual(answer.locator("figcaption span").inner_text(), "python")
            self.assertEqual(answer.locator("p").all_inner_texts(), ["Look:", "The end"])
            self.assert_clean(tab)

    def test_no_answer_keeps_the_page_busy(self):
        size = 8_000  # each of them took seconds, or for ever
        kinds = {"quotes": ">" * 64, "many quotes": ">" * size, "pictures": "![](" * (size // 4), "labels": "[a](" * (size // 4),
                 "brackets": "[" * size, "ticks": "`" * size, "rows of ticks": "`a``b```c" * (size // 9), "bold": "**a " * (size // 4),
                 "spaces": "a" + " " * size + "b", "a heading": "# a" + " " * size + "b\n\nx", "a fence": "```" + "a" * size + "`\n\nx",
                 "a rule of a table": "a|\n" + " " * size + "x\n\n", "cells": "a|b\n-|-\n" + "|" * size, "addresses": "http://...." * (size // 11)}
        pieces = lambda body: answer_frames(re.findall(r".{1,64}", kinds[body["messages"][-1]["content"]], re.S), probable=False)
        with Replay(pieces) as server:
            tab = self.tab(server.url)
            page = tab.open()
            for name in kinds:
                page.get_by_role("button", name="New chat").click()
                tab.say(name)
                tab.wait("document.querySelector('article.assistant .speed') !== null")
            self.assert_clean(tab)

    def test_many_blocks_at_once_take_no_longer_than_their_text(self):
        with Replay() as server:  # as a talk that is opened again, or an answer that came while the tab was hidden
            page = self.tab(server.url).open()
            for block in ("# a\n", "```\n", "> # a\n"):
                took = page.evaluate("""async (text) => {
                    const { MarkdownStream } = await import('/web/markdown.js');
                    const began = performance.now(), stream = new MarkdownStream(document.createElement('div'));
                    stream.push(text);
                    stream.finish();
                    return performance.now() - began;
                }""", block * 16_000)
                self.assertLess(took, 3_000, repr(block))

    def test_a_storage_that_others_have_written(self):
        nodes = {name: {"id": name, "role": "user", "content": "<img src=x onerror=alert(1)>", "parent": "root", "at": 1} for name in "ab"}
        evil = {"null": None, "bare": {"id": "bare", "title": "bare", "at": 1},
                "ring": {"id": "ring", "title": "ring", "at": 2, "chosen": {"root": "a", "a": "b", "b": "a"}, "nodes": nodes},
                "typed": {"id": "typed", "title": {"a": 1}, "at": 3, "chosen": {"root": "a"}, "nodes": {"a": {"id": "a", "content": 7}}}}
        with Replay() as server:
            tab = self.tab(server.url)
            page = tab.open()
            tab.box().wait_for()
            for name, talk in evil.items():
                page.evaluate("([name, text]) => localStorage.setItem('skein.talk.' + name, text)", [name, json.dumps(talk)])
            page.reload()
            tab.box().wait_for()
            for at in range(page.locator(".talks li").count()):
                page.locator(".talks li button:not(.drop)").nth(at).click()
            page.locator(".talks button", has_text="ring").click()
            self.assertEqual(page.locator("article").count(), 2)
            page.get_by_role("button", name="New chat").click()
            tab.say("Go")
            self.assertIn("Hello", tab.wait_for_end().inner_text())
            self.assert_clean(tab)

    def test_ten_thousand_tokens_without_a_stutter(self):
        words = ["The ", "quick ", "*brown* ", "fox ", "jumps ", "over ", "`code` ", "and ", "**bold** ", "text. "]
        kinds = {
            "one paragraph": [words[i % 10] for i in range(TOKENS)],
            "paragraphs": [words[i % 10] + ("\n\n" if i % 60 == 59 else "") for i in range(TOKENS)],
            "code": ["```python\n"] + [f"x{i} = {i}\n" if i % 3 == 0 else "y " for i in range(TOKENS)],
            "a table": ["| a | b |\n|---|---|\n"] + ["| " if i % 10 == 0 else words[i % 10] + (" | x |\n" if i % 10 == 9 else "") for i in range(TOKENS)],
            "a list": [("- " if i % 8 == 0 else "") + words[i % 10] + ("\n" if i % 8 == 7 else "") for i in range(TOKENS)],
        }
        for name, pieces in kinds.items():
            frames = answer_frames(pieces)
            with Replay(lambda body, frames=frames: frames) as server:
                tab = self.tab(server.url)
                page = tab.open()
                tab.box().wait_for()
                self.chromium.start_tracing(page=page, categories=["toplevel", "devtools.timeline"])
                began = time.monotonic()
                tab.say("Go")
                tab.wait("document.querySelector('article.assistant .speed') !== null", 60)
                seconds = time.monotonic() - began
                page.wait_for_timeout(200)
                longest = longest_task_ms(json.loads(self.chromium.stop_tracing())["traceEvents"])
                length = page.evaluate("document.querySelector('article.assistant .said').textContent.length")
                self.assertGreater(length, 0.8 * len(re.sub(r"[`*\n]", "", "".join(pieces))))
            print(f"{TOKENS:,} tokens of {name}: {seconds:.1f} s, longest task {longest:.0f} ms")
            FIGURES["task"] = max(FIGURES["task"], longest)
            self.assertLessEqual(longest, LONG_TASK_MS, name)


def longest_task_ms(events):
    """Of the page's own thread, in the time that it computed: what other processes took of the core is not the page's."""
    own = {(e["pid"], e["tid"]) for e in events if e["name"] == "thread_name" and e["args"].get("name") == "CrRendererMain"}
    return max(e.get("tdur", 0) for e in events if e["name"].endswith("RunTask") and (e["pid"], e["tid"]) in own) / 1000


def main():
    began = time.monotonic()
    result = unittest.main(exit=False).result
    seconds = time.monotonic() - began
    is_whole = result.wasSuccessful() and FIGURES["paint"] > 0 and FIGURES["task"] > 0 and FIGURES["looked"] > 0
    if result.wasSuccessful() and not is_whole and len(sys.argv) == 1:
        print("console: not everything was looked at; it takes Chromium, Playwright and the default model")
    is_busy = os.getloadavg()[1] > 3 * len(os.sched_getaffinity(0))  # with the work of others
    if is_whole and seconds > SECONDS and not PICTURES and not is_busy:
        print(f"console: {seconds:.0f} s are more than the {SECONDS} s that it may take")
        is_whole = False
    if is_whole:
        print(f"console: {result.testsRun - len(result.skipped)} tests in {seconds:.0f} s; first answer {FIGURES['first']:.1f} s after the start, page {FIGURES['weight'] / 1000:.0f} kB, first paint "
              f"{FIGURES['paint']:.0f} ms, longest task {FIGURES['task']:.0f} ms with {TOKENS:,} tokens; {FIGURES['pages']} pages without errors and requests "
              f"to other hosts, {FIGURES['looked']} views without serious findings of axe")
    sys.exit(0 if result.wasSuccessful() and (is_whole or len(sys.argv) > 1) else 1)


if __name__ == "__main__":
    main()

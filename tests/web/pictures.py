"""The pictures of docs/img, taken anew by `make console PICTURES=1`."""
import os
import pathlib
import threading
import unittest

from browser import BrowserTest, needs_browser, serving

PICTURES = pathlib.Path(__file__).resolve().parents[2] / "docs/img" if os.environ.get("SKEIN_PICTURES") == "1" else None


@needs_browser
@serving.needs_model
@unittest.skipUnless(PICTURES, "SKEIN_PICTURES=1 takes them")
class PictureTest(BrowserTest):
    """The pictures of docs/img, of a server with a pool so small that there is something to see."""

    def test_chat(self):
        """Answers of the default model, as it gives them with these seeds."""
        with serving.Server() as server:
            for scheme, width, question, seed in (("light", 1280, "Write a Python function that reverses a string", 6), ("dark", 390, "What are three good habits for the morning?", 7)):
                tab = self.tab(f"http://127.0.0.1:{server.port}", max_tokens=300, seed=seed, color_scheme=scheme, viewport={"width": width, "height": 800})
                page = tab.open()
                tab.wait("document.querySelector('.chat select')?.value")
                tab.say(question)
                tab.wait_for_end(60)
                page.mouse.move(0, 0)
                page.screenshot(path=PICTURES / f"console-chat-{width}.png")

    def test_live(self):
        stop = threading.Event()
        server = serving.Server("--batch-block-pool-size", "256", "--batch-max-batch-size", "8")
        self.addCleanup(server.close)
        self.addCleanup(stop.set)

        def load(at):
            while not stop.is_set():
                server.complete(f"Tell me story {at % 4} about yarn. " * 8, max_tokens=150, ignore_eos=True)

        tab = self.tab(f"http://127.0.0.1:{server.port}", color_scheme="dark", viewport={"width": 1280, "height": 800})
        page = tab.open("live")
        for at in range(14):
            threading.Thread(target=load, args=(at,), daemon=True).start()
        page.wait_for_timeout(40_000)
        page.screenshot(path=PICTURES / "console-live-1280.png")

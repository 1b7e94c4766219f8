"""The console in a browser, as a newcomer meets it: the page, the first answer, every view once. The quick half of console_test.py."""
import pathlib
import tempfile
import time
import unittest

from browser import Tab, browser, needs_browser, serving

VIEWS = ("Chat", "Live", "Requests", "Models", "Batches", "Keys", "Playground")


@needs_browser
class SmokeTest(unittest.TestCase):
    def test_a_first_answer_streams_and_every_view_opens(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        model = serving.MODEL if serving.MODEL.exists() and not serving.SANITIZED else serving.tiny_model(folder.name)
        with serving.Server(models=(model,)) as server, browser() as chromium:
            tab = Tab(chromium, f"http://127.0.0.1:{server.port}")
            began = time.monotonic()
            page = tab.open()
            tab.box().wait_for()
            self.assertEqual(page.locator("nav a").all_inner_texts(), list(VIEWS))
            tab.wait("document.querySelector('.chat select')?.value")
            tab.say("Say hello in three words.")
            tab.wait("document.querySelector('article.assistant .said')?.textContent.length > 0")
            page.keyboard.press("Escape")  # a small model may not know when to end
            tab.wait_for_end()
            print(f"first answer {time.monotonic() - began:.1f} s after the page was asked for")
            for view in VIEWS[1:]:
                page.get_by_role("link", name=view).click()
                page.locator("main h1").get_by_text(view).wait_for()
            allowed = ("401",)  # the view of keys, which an open server does not serve
            self.assertEqual([error for error in tab.errors if not any(word in error for word in allowed)], [])
            self.assertEqual(tab.foreign, [])
            tab.close()


if __name__ == "__main__":
    unittest.main()

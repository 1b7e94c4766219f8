"""tools/figures.py: figures go to their places, and nowhere else."""
import pathlib
import sys
import tempfile
import unittest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[2] / "tools"))
import figures  # noqa: E402


class PutTest(unittest.TestCase):
    def test_a_place_is_filled_and_filled_again(self):
        with tempfile.TemporaryDirectory() as folder:
            page = pathlib.Path(folder, "page.md")
            page.write_text("a\n<!-- figures: empty -->\n<!-- end -->\nb\n<!-- figures: full -->\nold\n<!-- end -->\nc\n")
            figures.PAGES = [page]
            for text in ("1", "2"):
                self.assertEqual(figures.put("empty", text), 1)
            self.assertEqual(figures.put("full", "3"), 1)
            self.assertEqual(figures.put("unknown", "4"), 0)
            self.assertEqual(page.read_text(), "a\n<!-- figures: empty -->\n2\n<!-- end -->\nb\n<!-- figures: full -->\n3\n"
                                               "<!-- end -->\nc\n")


if __name__ == "__main__":
    unittest.main()

"""Holds the walks of ARCHITECTURE.md to the tree: every file and value that a table names is there, the sentence below the table
counts what stands in it, and one streamed chat passes no more than was set.

In the cells of the last column a name is a path below src/ without its ending; one that ends in `/:` stands before the names that
follow it, up to a semicolon. What is in parentheses stands for its neighbour and is not counted.
"""
import functools
import pathlib
import re
import unittest

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent
WORDS = 15
CHAT, CHAT_FILES, CHAT_VALUES = "one streamed chat", 25, 10


class Walk:
    def __init__(self, title, text):
        self.title, self.files, self.alternatives = title, [], []
        rows = [line.strip("|").split("|") for line in text.splitlines() if line.startswith("|")][2:]
        for row in rows:
            self.read_files(row[-1])
        self.values = re.findall(r"\*\*(\w+)\*\*", " ".join(row[1] for row in rows))
        self.said = tuple(map(int, re.search(r"^These are (\d+) files\b[^.]*?\band (\d+) values\b", text, re.M).groups()))

    def read_files(self, cell):
        for part in cell.split(";"):
            folder = ""
            for opened, name, is_folder in re.findall(r"(\([^()`]*)?`([\w/]+)`(:?)", part):
                if is_folder:
                    folder = name
                else:
                    (self.alternatives if opened else self.files).append((folder, name))

    def counts(self):
        return len(self.files), len(self.values)


def path_of(folder, name):
    """The file's path below src/ without its ending; None where there is none."""
    return next((path for path in (folder + name, name) if any((ROOT / "src").glob(path + ".*"))), None)


def walks():
    page = (ROOT / "ARCHITECTURE.md").read_text()
    found = re.findall(r"^### The walk of (?:a )?(.+)\n((?:(?!#).*\n)*)", page, re.M)
    return {title: Walk(title, text) for title, text in found}


@functools.cache
def types():
    headers = "\n".join(path.read_text() for path in (ROOT / "src").rglob("*.h"))
    return set(re.findall(r"\b(?:struct|class|using) (\w+)", headers))


class Walks(unittest.TestCase):
    def test_all_walks_are_read(self):
        self.assertEqual(list(walks()), [CHAT, "one line of a batch", "load", "step"])

    def test_files_and_values_exist_once(self):
        for walk in walks().values():
            with self.subTest(walk.title):
                paths = [path_of(*file) for file in walk.files]
                missing = [file for file, path in zip(walk.files, paths) if path is None]
                self.assertEqual(missing + [file for file in walk.alternatives if path_of(*file) is None], [])
                self.assertEqual(sorted(set(paths)), sorted(paths))
                self.assertEqual(sorted(set(walk.values)), sorted(walk.values))
                self.assertEqual(set(walk.values) - types() - {"bytes"}, set())

    def test_the_sentences_count_what_the_tables_have(self):
        for walk in walks().values():
            with self.subTest(walk.title):
                self.assertEqual(walk.said, walk.counts())

    def test_every_line_names_its_file(self):
        for title, text in re.findall(r"^### The walk of (.+)\n((?:(?!#).*\n)*)", (ROOT / "ARCHITECTURE.md").read_text(), re.M):
            for line in text.splitlines():
                self.assertFalse(re.search(r"\|\s*\|$", line), f"{title}: {line}")

    def test_the_words_are_few(self):
        words = (ROOT / "ARCHITECTURE.md").read_text().split("\n## Words\n")[1].split("\n## ")[0]
        self.assertLessEqual(len(re.findall(r"(?m)^\| (?!word )\w", words)), WORDS)

    def test_a_chat_passes_few_files_and_values(self):
        files, values = walks()[CHAT].counts()
        self.assertLessEqual(files, CHAT_FILES)
        self.assertLessEqual(values, CHAT_VALUES)


class Reading(unittest.TestCase):
    def test_names(self):
        walk = Walk("x", "| a | b | c |\n|---|---|---|\n| t | An **A** and **B**s. | `p/`: `q`, `r` (or `s`); `u/v`, `w/x` |\n"
                         "\nThese are 4 files, on two threads, and 2 values.\n")
        self.assertEqual(walk.files, [("p/", "q"), ("p/", "r"), ("", "u/v"), ("", "w/x")])
        self.assertEqual(walk.alternatives, [("p/", "s")])
        self.assertEqual(walk.counts(), walk.said)


if __name__ == "__main__":
    unittest.main()

"""Every recipe of examples/python, run against a real server as docs/RECIPES.md tells it."""
import os
import pathlib
import subprocess
import sys
import unittest

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent
sys.path.insert(0, str(ROOT / "tests/apps"))
import serving  # noqa: E402

RECIPES = ROOT / "examples/python"
VENV = ROOT / "build/venv/bin/python"
PYTHON = str(VENV) if VENV.exists() else sys.executable


def has(package):
    return subprocess.run([PYTHON, "-c", f"import {package}"], capture_output=True).returncode == 0


@serving.needs_model
@serving.needs(has("openai"), "the openai package is not installed")
class RecipesTest(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.server = serving.Server("--pooling", "mean")

    @classmethod
    def tearDownClass(cls):
        cls.server.close()

    def run_recipe(self, name, *arguments):
        environment = {**os.environ, "SKEIN_URL": f"http://127.0.0.1:{self.server.port}"}
        done = subprocess.run([PYTHON, RECIPES / name, *arguments], env=environment, capture_output=True, text=True,
                              timeout=serving.PATIENCE_S)
        self.assertEqual(done.returncode, 0, done.stdout + done.stderr)
        return done.stdout

    def test_rag(self):
        said = self.run_recipe("rag.py", "How tall is the lighthouse?")
        self.assertEqual(said.count("found: "), 2)
        self.assertIn("found: The lighthouse of Nordkap", said)
        self.assertRegex(said, r"answer: .*38")

    def test_agent(self):
        said = self.run_recipe("agent.py")
        self.assertIn('called: multiply({"a": 17, "b": 23}) -> {"product": 391}', said)
        self.assertRegex(said, r"(?s)answer: .*391")

    def test_night_batch(self):
        said = self.run_recipe("night_batch.py").splitlines()
        self.assertEqual(said[0], "batch completed: 2 of 2")
        self.assertEqual(len(said), 3)
        for line in said[1:]:
            self.assertRegex(line, r"^(good|bad|neither): The ")

    @serving.needs(has("langchain_openai"), "the langchain-openai package is not installed")
    def test_langchain(self):
        said = self.run_recipe("langchain_chat.py")
        self.assertRegex(said, r"(?s)answer: .+stream: .+form: \{'name': '(red|green|blue)'\}")

    def test_all_are_told_and_tested(self):
        page = (ROOT / "docs/RECIPES.md").read_text()
        tests = pathlib.Path(__file__).read_text()
        for recipe in RECIPES.glob("*.py"):
            self.assertIn(f"examples/python/{recipe.name}", page)
            self.assertIn(f'"{recipe.name}"', tests)


if __name__ == "__main__":
    unittest.main()

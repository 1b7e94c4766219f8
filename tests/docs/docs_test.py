"""Runs every command of README.md and docs/, and holds what they name against the code: options, variables, routes,
metrics, families, quantizations, files.

A block fenced as ```sh is run line by line in an empty folder with links to build/ and tools/. A word after `sh` says what it
needs:
  needs-model   the default model
  small         `skein bench` commands get sizes that take a second
  server        a server of the default model stands for http://127.0.0.1:8080
  server-small  both
  look          root, a cluster or a long time: not run; options and make targets are looked up
```python blocks are run against the server where the openai package is installed.
"""
import os
import pathlib
import re
import subprocess
import sys
import tempfile
import unittest

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent
sys.path.insert(0, str(ROOT / "tests/apps"))
import serving  # noqa: E402

BINARY = pathlib.Path(os.environ.get("SKEIN_TEST_BINARY", ROOT / "build/skein")).resolve()
OF_EXAMPLES = {"URL", "KEY"}  # what programs of docs/RECIPES.md read
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]
KINDS = {"", "needs-model", "small", "server", "server-small", "look"}
SMALL = {"--prompts": "2", "--max-tokens": "2", "--concurrency": "1,2", "--rounds": "1", "--threads": "1"}


class Block:
    def __init__(self, page, line, language, kind, text):
        self.page, self.language, self.kind, self.text = page, language, kind, text
        self.where = f"{page.relative_to(ROOT)}:{line}"

    def commands(self):
        """Logical lines: continued ones and here-documents joined."""
        lines, pending, ending = [], "", None
        for line in self.text.splitlines():
            pending = f"{pending}\n{line}" if ending else pending + line
            if ending:
                if line != ending:
                    continue
                ending = None
            elif line.endswith("\\"):
                pending = pending[:-1]
                continue
            elif match := re.search(r"<<'(\w+)'", line):
                ending = match[1]
                continue
            if pending.strip() and not pending.lstrip().startswith("#"):
                lines.append(pending)
            pending = ""
        return lines


def blocks(page):
    for match in re.finditer(r"^```(\w+) ?([\w-]*)\n(.*?)^```", page.read_text(), re.S | re.M):
        line = page.read_text()[:match.start()].count("\n") + 1
        yield Block(page, line, match[1], match[2], match[3])


ALL_BLOCKS = [block for page in PAGES for block in blocks(page)]


def shrunk(command):
    """A `skein bench` command with small sizes."""
    if "roofline" in command or " sim" in command or " compare" in command or "skein bench" not in command:
        return command
    command = command.split("  #")[0].rstrip()
    sizes = dict(SMALL)
    if " serve " in command:
        del sizes["--rounds"], sizes["--threads"]
    else:
        command += " --no-limits"
    if "--rate" in command:
        del sizes["--concurrency"]
    for option, value in sizes.items():
        command = re.sub(rf" {option} \S+", "", command) + f" {option} {value}"
    return command


class Server:
    """One server for all blocks, started when the first one asks for it."""
    running = None

    @classmethod
    def url(cls):
        if cls.running is None:
            cls.running = serving.Server()
        return f"http://127.0.0.1:{cls.running.port}"


def tearDownModule():
    if Server.running is not None:
        Server.running.close()


class Commands(unittest.TestCase):
    done = set()  # commands that only look, so that once is enough

    def run_block(self, block):
        with tempfile.TemporaryDirectory() as folder:
            home = pathlib.Path(folder)
            (home / "build").mkdir()
            (home / "build/skein").symlink_to(BINARY)
            (home / "tools").symlink_to(ROOT / "tools")
            environment = serving.clean_environment(XDG_STATE_HOME=str(home / "state-home"))
            for command in block.commands():
                if block.kind.endswith("small"):
                    command = shrunk(command)
                if re.match(r"build/skein (inspect|bench roofline)", command):
                    if command in self.done:
                        continue
                    self.done.add(command)
                if block.kind.startswith("server"):
                    command = command.replace("http://127.0.0.1:8080", Server.url())
                if command.lstrip().startswith("curl"):
                    command = command.replace("curl", "curl --fail-with-body", 1)
                done = subprocess.run(["bash", "-euo", "pipefail", "-c", command], cwd=home, env=environment,
                                      stdin=subprocess.DEVNULL, capture_output=True, text=True,
                                      timeout=serving.PATIENCE_S)
                self.assertEqual(done.returncode, 0, f"{block.where}: {command}\n{done.stdout}{done.stderr}")

    def test_every_command_runs(self):
        ran = 0
        for block in (b for b in ALL_BLOCKS if b.language == "sh"):
            with self.subTest(block.where):
                self.assertIn(block.kind, KINDS, block.where)
                if block.kind == "look":
                    continue
                needs_model = block.kind.startswith(("needs-model", "server")) or "default" in block.text or \
                    ("skein bench" in block.text and block.kind == "small" and "--dummy-weights" not in block.text)
                if needs_model and not serving.MODEL.exists():
                    continue
                self.run_block(block)
                ran += 1
        self.assertGreater(ran, 5)

    @serving.needs_model
    def test_every_python_block_runs(self):
        venv = ROOT / "build/venv/bin/python"
        python = str(venv) if venv.exists() else sys.executable
        if subprocess.run([python, "-c", "import openai"], capture_output=True).returncode != 0:
            serving.lacks(self, "the openai package is not installed")
        for block in (b for b in ALL_BLOCKS if b.language == "python"):
            with self.subTest(block.where):
                code = block.text.replace("http://127.0.0.1:8080", Server.url())
                done = subprocess.run([python, "-c", code], capture_output=True, text=True,
                                      timeout=serving.PATIENCE_S)
                self.assertEqual(done.returncode, 0, done.stderr)
                self.assertTrue(done.stdout.strip())


def help_of(*command):
    return subprocess.run([str(BINARY), *command, "--help"], capture_output=True, text=True,
                          timeout=serving.PATIENCE_S).stdout


def subcommands(text):
    return re.findall(r"^  ([a-z]+) ", text.partition("Subcommands:\n")[2].split("\n\n")[0], re.M)


def all_help():
    """Command line -> the options it has."""
    table, todo = {}, [()]
    while todo:
        command = todo.pop()
        text = help_of(*command)
        table[command] = set(re.findall(r"(?<![\w-])(--?[a-z][a-z-]*)", text.partition("Options:")[2].split("Exit status")[0]))
        todo += [(*command, name) for name in subcommands(text)]
    return table


class Names(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.help = all_help()
        cls.every_option = set().union(*cls.help.values())

    def test_options_of_commands_exist(self):
        """In blocks and in `code`: the options of the very command that is named."""
        seen = 0
        for page in PAGES:
            text = page.read_text().replace("\\\n", " ")
            for match in re.finditer(r"(?:build/)?skein ((?:[a-z]+ ?){1,2})([^\n`|]*)", text):
                words = match[1].split()
                while words and tuple(words) not in self.help:
                    words.pop()
                if not words:
                    continue
                for option in re.findall(r"(?<=\s)(--?[a-z][a-z-]*)", " " + match[2].split("#")[0]):
                    seen += 1
                    self.assertIn(option, self.help[tuple(words)], f"{page.name}: skein {' '.join(words)} {option}")
        self.assertGreater(seen, 20)

    def test_options_in_prose_exist(self):
        scripts = "".join(path.read_text() for path in [*(ROOT / "tools").glob("*.py"), *(ROOT / "microbench").glob("*.cpp")])
        for page in PAGES:
            prose = re.sub(r"^```.*?^```", "", page.read_text(), flags=re.S | re.M)
            if page.name == "COMING_FROM.md":  # the other columns are others' options
                prose = re.sub(r"^(\| [^|]*\|).*$", r"\1", prose, flags=re.M)
            for option in re.findall(r"`(--[a-z][a-z-]*)", prose):
                self.assertTrue(option in self.every_option or f'"{option}"' in scripts, f"{page.name}: {option}")

    def test_an_option_that_is_none_is_found_out(self):
        self.assertNotIn("--batch-size", self.every_option)
        self.assertIn("--batch-max-batch-size", self.help[("serve",)])
        self.assertIn("--dummy-weights", self.help[("bench",)])
        self.assertIn("--url", self.help[("bench", "serve")])

    def test_scripts_take_their_options(self):
        for block in (b for b in ALL_BLOCKS if b.language == "sh"):
            for command in block.commands():
                if match := re.match(r"(tools/\w+\.py)(.*)", command):
                    text = subprocess.run([sys.executable, ROOT / match[1], "--help"], capture_output=True, text=True).stdout
                    for option in re.findall(r"(--[a-z-]+)", match[2]):
                        self.assertIn(option, text, block.where)

    def test_make_targets_exist(self):
        targets = set(re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(), re.M))
        for page in [*PAGES, ROOT / "CONTRIBUTING.md"]:
            for target in re.findall(r"(?:^|`|sudo )make ([a-z-]+)", page.read_text(), re.M):
                self.assertIn(target, targets, page.name)

    def test_variables_and_keys_exist(self):
        config = subprocess.run([str(BINARY), "serve", "--print-config"], capture_output=True, text=True,
                                env=serving.clean_environment()).stdout
        keys = set(re.findall(r"^#? ?([a-z_]+) =", config, re.M))
        self.assertIn("batch_max_batch_size", keys)
        for page in PAGES:
            for variable in set(re.findall(r"SKEIN_([A-Z_]+[A-Z])", page.read_text())) - OF_EXAMPLES:
                self.assertIn(variable.lower(), keys, page.name)
            for block in (b for b in ALL_BLOCKS if b.language == "toml"):
                for key in re.findall(r"^([a-z_]+) =", block.text, re.M):
                    self.assertIn(key, keys, block.where)

    def test_routes_are_the_table(self):
        source = (ROOT / "src/server/routes.def").read_text()
        table = {(m[1], m[2]) for m in re.finditer(r'^SKEIN_ROUTE\("([A-Z]+)", "([^"]+)"', source, re.M)}
        page = (ROOT / "docs/API.md").read_text()
        self.assertEqual({(m[1], m[2]) for m in re.finditer(r"^\| ([A-Z]+) \| `([^`]+)`", page, re.M)}, table)

    def test_metrics_exist(self):
        source = "".join(path.read_text() for path in (ROOT / "src/server/observe").glob("*.cpp"))
        known = set(re.findall(r'"((?:vllm|skein):[a-z_]+)"', source))
        for page in PAGES:
            for metric in re.findall(r"((?:vllm|skein):[a-z_]+)", page.read_text()):
                self.assertIn(metric, known, page.name)

    def test_families_and_quantizations_are_the_tables(self):
        page = (ROOT / "docs/MODELS.md").read_text()
        registry = (ROOT / "src/model/families/registry.def").read_text()
        known = {name for m in re.finditer(r'^SKEIN_(?:FOLDER_)?FAMILY\(\w+, "([^"]+)"', registry, re.M) for name in m[1].split()}
        rows = re.findall(r"^\| [^|]+\| ([^|]+) \| `[^|]+` \|$", page.split("## Families")[1].split("## Quant")[0], re.M)
        self.assertEqual({name for row in rows for name in re.findall(r"`(\w+)`", row)}, known)
        formats = (ROOT / "src/tensor/quant/formats.def").read_text()
        section = page.split("## Quantizations")[1].split("Each has")[0]
        self.assertEqual(set(re.findall(r"`(\w+)`", section)), set(re.findall(r"^SKEIN_QUANT\((\w+)", formats, re.M)))

    def test_links_lead_somewhere(self):
        for page in PAGES:
            for target in re.findall(r"\]\(([^)#]+)\)", page.read_text()):
                if not target.startswith("http"):
                    self.assertTrue((page.parent / target).exists(), f"{page.name}: {target}")

    def test_pictures_are_sound(self):
        import xml.etree.ElementTree
        pictures = sorted((ROOT / "docs/img").glob("*.svg"))
        self.assertTrue(pictures)
        for picture in pictures:
            xml.etree.ElementTree.parse(picture)
            self.assertIn("prefers-color-scheme: dark", picture.read_text(), picture.name)


if __name__ == "__main__":
    unittest.main()

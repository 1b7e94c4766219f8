"""Adds a toy endpoint, a toy option of `skein serve` and a toy backend to a copy of the tree, by exactly the steps that
CONTRIBUTING.md names under "Adding things", builds what they change, and sees each of them work.

The copy is configured like the build beside it (SKEIN_BUILD_DIR) and takes from it every object that the steps leave as it
is, so that what is compiled is what ninja would compile after such a change.
"""
import concurrent.futures
import http.client
import os
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile
import unittest

BUILD = pathlib.Path(os.environ.get("SKEIN_BUILD_DIR", "build/release")).resolve()
CACHE = (BUILD / "CMakeCache.txt").read_text()
ROOT = pathlib.Path(re.search(r"(?m)^CMAKE_HOME_DIRECTORY:\w+=(.*)$", CACHE)[1])
sys.path.insert(0, str(ROOT / "tests/apps"))
import serving  # noqa: E402

ENDPOINT = """// GET /toy, for a test.
#include "server/endpoints/reply.h"

namespace skein::endpoints {

void toy(ServerContext& context, Call& call, const http::Responder& responder) {
  send_json(responder, fmt::format(R"({{"toy":"{}","version":"{}"}})", call.id, context.settings.version));
}

}  // namespace skein::endpoints
"""
ROUTE = 'SKEIN_ROUTE("GET", "/toy/{id}", toy, kNone, kTier, 0)\n'
OPTION = """SKEIN_OPTION("Server", uint64_t, toy_requests, 10000, between(1, 1 << 30), http.max_requests_per_connection,
             "Requests of a connection before it closes")
"""
BACKEND = """#include "backend/reference/reference_backend.h"
#include "backend/registry.h"

namespace skein {

Result<std::unique_ptr<Backend>> make_toy(const BackendOptions& options, ComputePool&) {
  return make_reference_backend(options.precision);
}

}  // namespace skein
"""


def insert(text, before, line):
    assert text.count(before) == 1, before
    return text.replace(before, line + before)


# What is added: the row of CONTRIBUTING's table, and for each file that the row names its new text.
STEPS = {
    "an endpoint": {
        "src/server/endpoints/<name>.cpp": ("src/server/endpoints/toy.cpp", lambda _: ENDPOINT),
        "src/server/routes.def": ("src/server/routes.def", lambda text: insert(text, "\n#undef SKEIN_ROUTE", ROUTE)),
        "docs/API.md": ("docs/API.md", lambda text: insert(text, "| GET | `/version`", "| GET | `/toy/{id}` | a toy |\n")),
    },
    "an option of `skein serve`": {
        "src/apps/serve_options.def": ("src/apps/serve_options.def", lambda text: text + OPTION),
    },
    "a backend": {
        "src/backend/<name>/": ("src/backend/toy/toy_backend.cpp", lambda _: BACKEND),
        "src/backend/registry.def": ("src/backend/registry.def",
                                     lambda text: insert(text, "\n#undef SKEIN_BACKEND", "SKEIN_BACKEND(toy)\n")),
        "src/backend/CMakeLists.txt": ("src/backend/CMakeLists.txt",
                                       lambda text: insert(text, "    vocabulary_scan.cpp\n", "    toy/toy_backend.cpp\n")),
        "tests/backend/conformance.h": ("tests/backend/conformance.h",
                                        lambda text: insert(text, "  return backends;\n", '  backends.push_back(registered("toy"));\n')),
    },
}


def table():
    """Row -> the files it names, of the table in CONTRIBUTING.md."""
    text = (ROOT / "CONTRIBUTING.md").read_text().split("## Adding things")[1]
    rows = re.findall(r"^\| (.+?) \| (.+) \|$", text, re.M)
    return {what: re.findall(r"`([^`\s]+)`", where) for what, where in rows}


def mirror(copy):
    """The tree as links, so that it costs nothing; what a step changes becomes a file."""
    for folder, folders, files in os.walk(ROOT):
        here = pathlib.Path(folder).relative_to(ROOT)
        folders[:] = [f for f in folders if here != pathlib.Path(".") or (f != "build" and not f.startswith("."))]
        (copy / here).mkdir(parents=True, exist_ok=True)
        for name in files:
            os.symlink(ROOT / here / name, copy / here / name)


def take_steps(copy):
    for files in STEPS.values():
        for path, change in files.values():
            target = copy / path
            old = target.read_text() if target.exists() else None
            new = change(old)
            target.unlink(missing_ok=True)
            target.parent.mkdir(exist_ok=True)
            target.write_text(new)


def configure(copy, build):
    kept = re.findall(r"(?m)^((?:SKEIN_\w+|CMAKE_BUILD_TYPE|CMAKE_CXX_COMPILER|CMAKE_CXX_FLAGS):\w+=.*)$", CACHE)
    options = [f"-D{line.replace(str(ROOT), str(copy))}" for line in kept]
    subprocess.run(["cmake", "-G", "Ninja", "-S", copy, "-B", build, *options], check=True, stdout=subprocess.DEVNULL,
                   env={**os.environ, "CMAKE_CXX_COMPILER_LAUNCHER": "", "CMAKE_C_COMPILER_LAUNCHER": ""})


class Builder:
    """Builds targets in `build` with the objects of BUILD wherever nothing they were made of differs."""

    def __init__(self, copy, build):
        self.copy, self.build = copy, build
        self.changed = set()  # outputs
        self.compiled = []
        self.dependencies = {}
        listing = subprocess.run(["ninja", "-C", BUILD, "-t", "deps"], check=True, capture_output=True, text=True).stdout
        for block in listing.split("\n\n"):
            head, *lines = block.strip().split("\n")
            self.dependencies[head.split(":")[0]] = [line.strip() for line in lines]

    def commands(self, where, targets):
        """Output -> the command that makes it, in order."""
        lines = subprocess.run(["ninja", "-C", where, "-t", "commands", *targets], check=True, capture_output=True,
                               text=True).stdout.splitlines()
        lines = [line for line in lines if not line.startswith("ninja: ")]
        made = {}
        for line in lines:
            out = re.search(r"(?: -o |/ar qc )(\S+)", line)
            if out:
                made[out[1].replace(str(self.build), "BUILD").replace(str(BUILD), "BUILD")] = line
        return made

    def plain(self, text):
        """A command or a file without the two trees' names."""
        text = re.sub(r"(?m)^ccache ", "", text)
        for path, name in ((self.build, "BUILD"), (BUILD, "BUILD"), (self.copy, "TREE"), (ROOT, "TREE")):
            text = text.replace(str(path), name)
        return text

    def same_file(self, path):
        real = pathlib.Path(os.path.normpath(BUILD / path))
        if BUILD in real.parents:
            name = str(real.relative_to(BUILD))
            if name in self.changed:
                return False
            if not (self.build / name).exists():  # made by a command of the build, of files that no step changes
                (self.build / name).parent.mkdir(parents=True, exist_ok=True)
                shutil.copyfile(real, self.build / name)
            return name.endswith(".gch") or self.plain((self.build / name).read_text()) == self.plain(real.read_text())
        if ROOT not in real.parents:
            return True  # the system's
        mine = self.copy / real.relative_to(ROOT)
        return mine.is_symlink() or (mine.exists() and mine.read_bytes() == real.read_bytes())

    def reuse(self, out, command, old):
        """Takes an output from the other build where the same command made it of the same files."""
        if out not in old or self.plain(old[out]) != self.plain(command) or not (BUILD / out).exists():
            return False
        if " -c " in command:
            same = out in self.dependencies and all(self.same_file(d) for d in self.dependencies[out])
        else:
            same = not self.changed.intersection(re.findall(r"\S+\.[oa]\b", command))
        if same:
            target = self.build / out
            target.parent.mkdir(parents=True, exist_ok=True)
            os.symlink(BUILD / out, target)
        return same

    def run(self, command):
        done = subprocess.run(command, shell=True, cwd=self.build, capture_output=True, text=True)
        if done.returncode != 0:
            raise AssertionError(f"{command}\n{(done.stdout + done.stderr)[:4000]}")

    def make(self, *targets):
        old, new = self.commands(BUILD, targets), self.commands(self.build, targets)
        waiting = []
        for out, command in new.items():
            if " -c " in command and not self.reuse(out, command, old):
                self.changed.add(out)
                (self.build / out).parent.mkdir(parents=True, exist_ok=True)
                waiting.append(command)
                self.compiled.append(out)
        with concurrent.futures.ThreadPoolExecutor(os.cpu_count()) as pool:
            list(pool.map(self.run, waiting))
        for out, command in new.items():
            if " -c " not in command and not self.reuse(out, command, old):
                self.changed.add(out)
                self.run(command)


class AddingThingsTest(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.folder = tempfile.TemporaryDirectory(prefix="skein-adding-")
        cls.addClassCleanup(cls.folder.cleanup)
        copy = pathlib.Path(cls.folder.name).resolve() / "tree"
        mirror(copy)
        take_steps(copy)
        cls.build = copy / "build/release"
        configure(copy, cls.build)
        cls.builder = Builder(copy, cls.build)
        cls.builder.make("skein", "backend_conformance_test")
        serving.BINARY = str(copy / "build/skein")

    def test_the_steps_are_those_of_the_table(self):
        rows = table()
        for what, files in STEPS.items():
            self.assertEqual(sorted(rows[what]), sorted(files), what)

    def test_only_what_the_steps_change_is_compiled(self):
        self.assertGreater(len(self.builder.compiled), 3)
        self.assertLess(len(self.builder.compiled), 14, self.builder.compiled)

    def test_the_option_is_there_and_the_endpoint_answers(self):
        self.assertRegex(serving.run("serve", "--help").stdout, r"--toy-requests N\s+Requests of a connection")
        self.assertNotEqual(serving.run("serve", "--print-config", "--toy-requests", "0").returncode, 0)
        model = serving.tiny_model(self.folder.name)
        with serving.Server("--toy-requests", "2", models=[model]) as server:
            connection = http.client.HTTPConnection("127.0.0.1", server.port, timeout=serving.PATIENCE_S)
            for expected in (None, "close"):
                connection.request("GET", "/toy/a%20b")
                answer = connection.getresponse()
                self.assertEqual(answer.status, 200)
                self.assertRegex(answer.read().decode(), r'^\{"toy":"a b","version":"[\d.]+"\}$')
                self.assertEqual(answer.getheader("Connection"), expected)
            connection.close()

    def test_the_backend_conforms(self):
        binary = self.build / "tests/backend/backend_conformance_test"
        done = subprocess.run([binary, "--gtest_filter=*/toy_1"], capture_output=True, text=True)
        self.assertEqual(done.returncode, 0, done.stdout + done.stderr)
        passed = re.search(r"\[  PASSED  \] (\d+) tests", done.stdout)
        self.assertGreater(int(passed[1]), 10, done.stdout)


if __name__ == "__main__":
    unittest.main()

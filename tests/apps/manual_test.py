"""`skein manual`: pages and completions say what the command line has."""
import pathlib
import re
import shutil
import subprocess
import tempfile
import unittest

import serving


def help_of(*command):
    return serving.run(*command, "--help").stdout


def subcommands(text):
    return re.findall(r"^  ([a-z-]+) ", text.partition("Subcommands:\n")[2].split("\n\n")[0], re.M)


class ManualTest(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.folder = tempfile.TemporaryDirectory()
        cls.share = pathlib.Path(cls.folder.name)
        made = serving.run("manual", cls.share)
        assert made.returncode == 0, made.stderr
        cls.commands, todo = {}, [()]
        while todo:  # every command with its options, as --help has them
            command = todo.pop()
            text = help_of(*command)
            lines = re.findall(r"^  (-[^ ]+)", text, re.M)
            cls.commands[command] = {name.split("{")[0] for line in lines for name in line.split(",") if name.startswith("--")}
            todo += [(*command, name) for name in subcommands(text)]

    @classmethod
    def tearDownClass(cls):
        cls.folder.cleanup()

    def page(self, *command):
        return (self.share / "man/man1" / ("-".join(("skein", *command)) + ".1")).read_text()

    def complete(self, *words):
        """What bash would offer for the last word."""
        script = self.share / "bash-completion/completions/skein"
        program = ('source "$1"; shift; COMP_WORDS=("$@"); COMP_CWORD=$((${#COMP_WORDS[@]} - 1)); _skein; '
                   'printf "%s\\n" "${COMPREPLY[@]}"')
        done = subprocess.run(["bash", "-c", program, "bash", script, "skein", *words], capture_output=True, text=True)
        self.assertEqual((done.returncode, done.stderr), (0, ""))
        return set(done.stdout.split())

    def test_every_command_has_a_page_with_its_options(self):
        pages = {path.stem for path in (self.share / "man/man1").iterdir()}
        self.assertEqual(pages, {"-".join(("skein", *command)) for command in self.commands})
        for command, options in self.commands.items():
            self.assertTrue(options, command)
            text = self.page(*command).replace("\\-", "-")
            for option in options:
                self.assertIn(option, text, command)
        self.assertIn(".SH NAME\nskein\\-keys\\-add \\- ", self.page("keys", "add"))
        self.assertNotIn("skein-manual", pages)

    @serving.needs(shutil.which("man"), "there is no man (Debian's man-db)")
    def test_man_finds_nothing_wrong(self):
        for path in (self.share / "man/man1").iterdir():
            done = subprocess.run(["man", "--warnings", "-E", "UTF-8", "-l", "-Tutf8", "-Z", path], capture_output=True, text=True,
                                  env={"LC_ALL": "C.UTF-8", "MANROFFSEQ": "", "MANWIDTH": "80", "PATH": "/usr/bin:/bin"})
            self.assertEqual((done.returncode, done.stderr), (0, ""), path.name)

    def test_bash_completes_commands_options_and_values(self):
        self.assertIn("serve", self.complete(""))
        self.assertEqual(self.complete("ser"), {"serve"})
        self.assertEqual(self.complete("keys", "ro"), {"rotate"})
        self.assertEqual(self.complete("serve", "--kv-d"), {"--kv-dtype"})
        self.assertEqual(self.complete("serve", "--kv-dtype", ""), {"auto", "f32", "bf16", "int8"})
        self.assertEqual(self.complete("run", "--precision", "d"), {"default"})
        self.assertIn("--no-sandbox", self.complete("serve", "--no-"))
        self.assertIn("--url", self.complete("bench", "serve", "--"))
        self.assertNotIn("--url", self.complete("serve", "--"))
        for command, options in self.commands.items():
            self.assertLessEqual(options - {"--help"}, self.complete(*command, "--"), command)

    @unittest.skipUnless(shutil.which("zsh"), "there is no zsh")
    def test_zsh_can_read_it(self):
        script = self.share / "zsh/vendor-completions/_skein"
        self.assertTrue(script.read_text().startswith("#compdef skein\n"))
        done = subprocess.run(["zsh", "-n", script], capture_output=True, text=True)
        self.assertEqual((done.returncode, done.stderr), (0, ""))

    @unittest.skipUnless(shutil.which("fish"), "there is no fish")
    def test_fish_completes(self):
        script = self.share / "fish/vendor_completions.d/skein.fish"

        def complete(line):
            done = subprocess.run(["fish", "--no-config", "-c", f"source {script}; complete -C '{line}'"], capture_output=True, text=True)
            self.assertEqual((done.returncode, done.stderr), (0, ""))
            return {row.split("\t")[0] for row in done.stdout.splitlines()}

        self.assertEqual(complete("skein ser"), {"serve"})
        self.assertEqual(complete("skein keys ro"), {"rotate"})
        self.assertEqual(complete("skein serve --kv-dtype "), {"auto", "f32", "bf16", "int8"})


if __name__ == "__main__":
    unittest.main()

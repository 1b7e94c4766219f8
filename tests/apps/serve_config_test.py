"""`skein serve --print-config`: where options come from, and what is said about bad ones."""
import pathlib
import re
import tempfile
import unittest

import serving


def effective(*arguments, env=None):
    """{name: (value as TOML, origin)}"""
    done = serving.run("serve", "--print-config", *arguments, env=env)
    assert done.returncode == 0, done.stderr
    rows = (re.fullmatch(r"(\w+) = (.*?) +# (.*)", line) for line in done.stdout.splitlines())
    return {row[1]: (row[2], row[3]) for row in rows if row}


# What a value that differs from the default looks like: as TOML, and as a word.
def another(name, value):
    words = {"precision": "f32", "kv_dtype": "int8", "log_level": "error", "cpu_isa": "scalar", "pooling": "mean",
             "tool_format": "llama-3", "reasoning_format": "think", "sampling_defaults": "openai", "speculation": "ngram",
             "kv_events_encoding": "map"}
    if "memory" in name or "bytes" in name or name == "min_free_disk":
        return '"3GiB"', "3GiB"
    if name in words:
        return f'"{words[name]}"', words[name]
    if value in ("true", "false"):
        flipped = "false" if value == "true" else "true"
        return flipped, flipped
    if value.startswith("["):
        return '["a", "b"]', "a,b"
    if value.startswith('"'):
        return '"/x y"', "/x y"
    return (str(int(value) + 1),) * 2 if "." not in value else (value + "5",) * 2


class ConfigTest(unittest.TestCase):
    def setUp(self):
        self.folder = tempfile.TemporaryDirectory()
        self.addCleanup(self.folder.cleanup)

    def file(self, text):
        path = pathlib.Path(self.folder.name) / "skein.toml"
        path.write_text(text)
        return path

    def test_defaults_are_those_of_the_design(self):
        config = effective()
        for name, value in {"host": '"127.0.0.1"', "port": "8080", "enable_batching": "true", "prefix_cache": "true",
                            "batch_max_batch_size": "0", "batch_block_pool_size": "0", "step_timeout": "60",
                            "aging_rate": "0.1", "max_queue": "1024", "step_tokens": "256", "drain_timeout": "30",
                            "precision": '"default"', "speculation": '"auto"', "insecure_open": "false", "share_prefixes": "false"}.items():
            self.assertEqual(config[name], (value, "default"), name)

    def test_flag_goes_before_variable_before_file_before_default(self):
        path = self.file("# the file\nport = 1001\nmax_queue = 2001\nenable_batching = false\nstep_tokens = 301\n")
        config = effective("--config", path, "--port", "1003", "--enable-batching",
                           env={"SKEIN_PORT": "1002", "SKEIN_MAX_QUEUE": "2002", "SKEIN_ENABLE_BATCHING": "false"})
        self.assertEqual(config["port"], ("1003", "--port"))
        self.assertEqual(config["enable_batching"], ("true", "--enable-batching"))
        self.assertEqual(config["max_queue"], ("2002", "SKEIN_MAX_QUEUE"))
        self.assertEqual(config["step_tokens"], ("301", f"{path}:5"))
        self.assertEqual(config["batch_lines"], ("4", "default"))

    def test_every_option_has_a_flag_a_variable_and_a_key(self):
        defaults = effective()
        self.assertGreater(len(defaults), 30)
        lines, variables, flags = [], {}, []
        for name, (value, _) in defaults.items():
            toml, word = another(name, value)
            lines.append(f"{name} = {toml}")
            variables[f"SKEIN_{name.upper()}"] = word
            flag = "--" + name.replace("_", "-")
            if value in ("true", "false"):
                flags.append(flag if toml == "true" else flag.replace("--", "--no-", 1))
            else:
                flags += [part for each in (word.split(",") if value[0] == "[" else [word]) for part in (flag, each)]
        path = self.file("\n".join(lines))
        ways = {"file": effective("--config", path), "variables": effective(env=variables), "flags": effective(*flags)}
        for way, config in ways.items():
            for name, (value, _) in defaults.items():
                self.assertEqual(config[name][0], another(name, value)[0], f"{name} by {way}")
                self.assertNotEqual(config[name][1], "default", f"{name} by {way}")

    def test_what_is_printed_is_a_file_that_gives_the_same(self):
        first = serving.run("serve", "--print-config", "--model", 'a"b\\c', "--model", "ü", "--memory", "1536MiB",
                            "--aging-rate", "0.25").stdout
        again = effective("--config", self.file(first))
        self.assertEqual({k: v[0] for k, v in again.items()},
                         {m[1]: m[2] for m in re.finditer(r"(?m)^(\w+) = (.*?) +# ", first)})
        self.assertEqual(again["model"][0], r'["a\"b\\c", "ü"]')

    def test_config_file_may_come_from_a_variable(self):
        path = self.file("port = 1001\n")
        self.assertEqual(effective(env={"SKEIN_CONFIG": str(path)})["port"], ("1001", f"{path}:1"))

    def test_bad_files_are_refused_with_the_line(self):
        for text, wanted in {
            "port = 1\nbatch_max = 3\n": ":2: unknown key 'batch_max'",
            "max-queue = 3\n": ":1: unknown key 'max-queue'; it is written 'max_queue'",
            "\n\n[server]\nport = 1\n": ":3: unknown key 'server'",
            'port = "80"\n': ":1: port: it must be a whole number",
            "port = 65536\n": ":1: port: 65536 is not between 0 and 65535",
            "max_queue = -1\n": ":1: max_queue: -1 is not between 1 and 1048576",
            "enable_batching = 1\n": ":1: enable_batching: it must be true or false",
            "aging_rate = nan\n": ":1: aging_rate: nan is not between",
            'kv_dtype = "int4"\n': ":1: kv_dtype: 'int4' is none of auto|f32|bf16|int8",
            'precision = "f16"\n': ":1: precision: 'f16' is none of f32|default|high",
            "model = [1]\n": ":1: model: it must be a list of texts",
            'memory = "8GB"\n': ":1: memory: '8GB' is not a size",
            "host = 'a'\nport = = 1\n": ":2: ",
            "port = 1\nport = 2\n": ":2: ",
        }.items():
            path = self.file(text)
            done = serving.run("serve", "--config", path, "--print-config")
            self.assertEqual(done.returncode, 1, text)
            self.assertIn(f"{path}{wanted}", done.stderr)

    def test_bad_variables_flags_and_files_are_refused_by_name(self):
        for arguments, env, status, wanted in (
            ((), {"SKEIN_PORT": "eighty"}, 1, "SKEIN_PORT: 'eighty' is not a whole number"),
            ((), {"SKEIN_ENABLE_BATCHING": "maybe"}, 1, "SKEIN_ENABLE_BATCHING: 'maybe' is neither true nor false"),
            (("--config", "/no/such/file.toml"), {}, 1, "/no/such/file.toml cannot be opened"),
            (("--port", "70000"), {}, 2, "--port: 70000 is not between 0 and 65535"),
            (("--precision", "f64"), {}, 2, "--precision: 'f64' is none of"),
            (("--port", "1", "--port", "2"), {}, 2, "--port"),
            (("--no-such-flag",), {}, 2, "--no-such-flag"),
        ):
            done = serving.run("serve", "--print-config", *arguments, env=env)
            self.assertEqual(done.returncode, status, arguments)
            self.assertIn(wanted, done.stderr)

    def test_help_shows_every_option_with_its_default(self):
        text = serving.run("serve", "--help").stdout
        for name, (value, _) in effective().items():
            self.assertIn("--" + name.replace("_", "-"), text)
        self.assertIn("[1024]", text)


if __name__ == "__main__":
    unittest.main()

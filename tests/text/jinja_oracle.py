#!/usr/bin/env python3
"""Renders templates as Hugging Face's apply_chat_template does, with Jinja2 itself.

stdin: a JSON list of {"template": ..., "context": {...}}; stdout: a JSON list of {"text": ...} or
{"error": ...}, in the same order. The time is the fixed one of the tests, 2026-01-02 03:04:05.
"""
import datetime
import functools
import json
import sys

import jinja2
import jinja2.ext
import jinja2.sandbox


class Generation(jinja2.ext.Extension):
    """{% generation %} ... {% endgeneration %}: prints its body, which is a function of its own."""

    tags = {"generation"}

    def parse(self, parser):
        line = next(parser.stream).lineno
        body = parser.parse_statements(["name:endgeneration"], drop_needle=True)
        return jinja2.nodes.CallBlock(self.call_method("_print"), [], [], body).set_lineno(line)

    def _print(self, caller):
        return caller()


def raise_exception(message):
    raise jinja2.exceptions.TemplateError(message)


def tojson(x, ensure_ascii=False, indent=None, separators=None, sort_keys=False):
    return json.dumps(x, ensure_ascii=ensure_ascii, indent=indent, separators=separators, sort_keys=sort_keys)


def strftime_now(format):
    return datetime.datetime(2026, 1, 2, 3, 4, 5).strftime(format)


def environment():
    env = jinja2.sandbox.ImmutableSandboxedEnvironment(
        trim_blocks=True, lstrip_blocks=True, extensions=[Generation, jinja2.ext.loopcontrols])
    env.filters["tojson"] = tojson
    env.globals["raise_exception"] = raise_exception
    env.globals["strftime_now"] = strftime_now
    return env


@functools.lru_cache(maxsize=None)
def compiled(source):
    return environment().from_string(source)


def render(case):
    try:
        text = compiled(case["template"]).render(**case["context"])
        text.encode("utf-8")
        return {"text": text}
    except Exception as error:  # whatever it is, the template was refused
        return {"error": f"{type(error).__name__}: {error}"}


def main():
    json.dump([render(case) for case in json.load(sys.stdin)], sys.stdout)


if __name__ == "__main__":
    main()

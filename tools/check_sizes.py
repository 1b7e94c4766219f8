#!/usr/bin/env python3
"""Holds functions to 70 lines and files to 400; kernels, whose length is unrolled loops, have limits of their own.

A function is counted from its name to its closing brace, a test like any other. Two lists name what may be longer, with its length,
which may shrink and never grow; what fits goes from its list. ONE_NOUN has the few files that hold one thing whose halves nobody would
look for apart; EXCEPTIONS what was longer on the day this check came.
"""
import ast
import re
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
FILE_LINES, FUNCTION_LINES = 400, 70
KERNELS = re.compile(r"^src/backend/(cpu|cuda)/.*\.(inl|cu|cuh)$")
KERNEL_FILE_LINES, KERNEL_FUNCTION_LINES = 600, 120
GENERATED = re.compile(r"\.inc$")
ONE_NOUN_FILES, ONE_NOUN_LINES = 12, 800
ONE_NOUN = {
    "src/engine/loop/batch_inference_engine.cpp": 420,
    "src/sched/scheduler.cpp": 540,
    "src/server/http/connection.cpp": 638,
    "src/text/jinja/filters.cpp": 739,
    "src/text/jinja/format.cpp": 771,
    "src/text/jinja/interpreter.cpp": 701,
    "src/text/jinja/operations.cpp": 727,
    "src/text/jinja/parser.cpp": 779,
    "src/text/jinja/strings.cpp": 496,
}
EXCEPTIONS = {
    "tests/engine/pressure.cpp:PressureLoad::run": 75,
}
# What precedes a brace that opens no function.
OTHER = re.compile(r"^\s*(?:(?:inline|export|extern \"C\"|typedef|static|constexpr|const|template\s*<.*>|\[\[.*?\]\]|alignas\s*\([^)]*\))\s*)*"
                   r"(?:namespace|class|struct|union|enum|extern)\b|=\s*$|\breturn\s*$|,\s*$", re.S)
NOISE = re.compile(r'R"(\w*)\((?:.|\n)*?\)\1"|"(?:\\.|[^"\\\n])*"|\'(?:\\.|[^\'\\\n])+\'|//[^\n]*|/\*(?:.|\n)*?\*/')


def blanked(match):
    """The lines of a comment or a literal without their characters."""
    return re.sub(r"[^\n]", " ", match[0]) if match[0][0] == "/" else '"' + "\n" * match[0].count("\n") + '"'


def functions(text):
    """Yields (first line, lines, name) of every function that is not inside another."""
    text = re.sub(r"(?<=\w)'(?=\w)", "", text)  # the separators of numbers
    text = NOISE.sub(blanked, text)
    text = re.sub(r"^[ \t]*#(?:.*\\\n)*.*$", lambda m: "\n" * m[0].count("\n"), text, flags=re.M)
    depth, inside, began, head_at, line = 0, None, None, 0, 1
    for at, c in enumerate(text):
        if c == "\n":
            line += 1
        elif c == "{":
            head = text[head_at:at]
            if inside is None and ")" in head and not OTHER.search(head):
                began = line - head.lstrip().count("\n")
                inside = depth
                name = re.search(r"([\w:~]+(?:\s*\([^()]*\))?)\s*\(", head)
                title = (name[1] if name else head.strip())[:60]
                if title in ("TEST", "TEST_F", "TEST_P"):
                    title = re.sub(r"\s+", " ", head.strip())[:70]
            depth += 1
            head_at = at + 1
        elif c == "}":
            depth -= 1
            if inside == depth:
                yield began, line - began + 1, title
                inside = None
            head_at = at + 1
        elif c == ";" and inside is None:
            head_at = at + 1
        elif c == ":" and inside is None and re.search(r"\b(public|private|protected)\s*$", text[head_at:at]):
            head_at = at + 1


def python_functions(text):
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)):
            yield node.lineno, node.end_lineno - node.lineno + 1, node.name


def findings(path, text, exceptions):
    """Yields one line for everything in `text` (the file `path`) that is too long."""
    kernel = KERNELS.match(path)
    lines = text.count("\n")
    allowed = exceptions.get(path, KERNEL_FILE_LINES if kernel else FILE_LINES)
    if lines > allowed:
        yield f"{path}: {lines} lines, at most {allowed}"
    elif path in exceptions and lines <= FILE_LINES:
        yield f"{path}: {lines} lines fit; take it from its list in tools/check_sizes.py"
    every = python_functions if path.endswith(".py") else functions
    for first, length, name in every(text):
        allowed = exceptions.get(f"{path}:{name}", KERNEL_FUNCTION_LINES if kernel else FUNCTION_LINES)
        if length > allowed:
            yield f"{path}:{first}: {name} has {length} lines, at most {allowed}"


def self_test():
    body = "  x();\n" * 69
    short, long = f"int f(int a) {{\n{body[:-7]}}}\n", f"void Thing::g() const {{\n{body}}}\n"
    wrapped = f"namespace a {{\nclass B : public C {{\n public:\n{short}{long}}};\n}}\nstd::vector<int> list = {{\n{body}}};\n"
    assert [f[1:] for f in functions(wrapped)] == [(70, "f"), (71, "Thing::g")], list(functions(wrapped))
    test = "TEST(A, B) {\n" + "  y(\"}\", '{', 1'000);  // }\n" * 80 + "}\n"
    assert [f[1] for f in functions(test)] == [82], list(functions(test))
    assert list(functions("struct S { int a = f(); };\nconst auto kTable = make(1);\n")) == []
    assert len(list(findings("src/a.cpp", wrapped, {}))) == 1
    assert len(list(findings("src/a.cpp", "\n" * 401, {}))) == 1
    assert list(findings("src/a.cpp", "\n" * 401, {"src/a.cpp": 401})) == []
    assert len(list(findings("src/a.cpp", "\n" * 402, {"src/a.cpp": 401}))) == 1
    assert len(list(findings("src/a.cpp", "\n", {"src/a.cpp": 401}))) == 1
    assert len(ONE_NOUN) <= ONE_NOUN_FILES and all(FILE_LINES < n <= ONE_NOUN_LINES for n in ONE_NOUN.values()), ONE_NOUN
    assert list(findings("src/backend/cpu/a.inl", "\n" * 500, {})) == []
    assert len(list(findings("tools/a.py", "def f():\n" + "    x()\n" * 70, {}))) == 1


def main():
    if sys.argv[1:] == ["--self-test"]:
        return self_test()
    listed = subprocess.run(["git", "ls-files", "-co", "--exclude-standard", "*.h", "*.cpp", "*.inl", "*.cu", "*.cuh", "*.py"], cwd=ROOT,
                            check=True, capture_output=True, text=True).stdout.split()
    listed_long = {**EXCEPTIONS, **ONE_NOUN}
    found = [f"{path}: is gone; take it from its list in tools/check_sizes.py"
             for path in listed_long if not (ROOT / path.split(":")[0]).exists()]
    for path in sorted(path for path in set(listed) if not GENERATED.search(path) and (ROOT / path).exists()):
        found += findings(path, (ROOT / path).read_text(), listed_long)
    print("\n".join(found) if found else f"sizes: {len(listed)} files fit")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())

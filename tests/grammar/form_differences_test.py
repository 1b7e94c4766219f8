"""Random forms beside two other opinions: llguidance's wheel, mask by mask over bytes, and Python's `re`, text by text.

    form_differences_test.py FORM_MASKS

A difference fails the test unless a line of EXPLAINED says why it is right."""
import importlib
import json
import pathlib
import random
import re
import subprocess
import sys
import unittest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "apps"))
import serving

VENV = pathlib.Path(__file__).resolve().parents[2] / "build/venv"
sys.path[:0] = [str(path) for path in VENV.glob("lib/python*/site-packages")]
try:
    llguidance = importlib.import_module("llguidance")
    gbnf_to_lark = importlib.import_module("llguidance.gbnf_to_lark").gbnf_to_lark
except ImportError:
    llguidance = None

ROUNDS = 120  # forms of each kind

# Why the two may differ at a byte. Each is (kind, rule over (text, byte, ours, theirs), reason).
EXPLAINED = [
    ("schema", lambda text, byte, ours, theirs: ours and in_string(text) and byte == 0x7F,
     "U+007F may stand in a JSON string; llguidance wants it escaped"),
    ("schema", lambda text, byte, ours, theirs: in_string(text) and re.search(rb"\\(u[0-9a-fA-F]{0,3})?$", text),
     "escapes: pairs of surrogates are taken here, and only what must be escaped otherwise"),
]


def in_string(text):
    """Whether the beginning of a JSON document ends inside a string."""
    inside = escaped = False
    for byte in text:
        if escaped:
            escaped = False
        elif byte == ord("\\"):
            escaped = inside
        elif byte == ord('"'):
            inside = not inside
    return inside


class Forms:
    """Random forms, from what both sides mean the same by."""

    def __init__(self, seed):
        self.random = random.Random(seed)

    def regex(self, depth=0):
        atoms = ["a", "b", "ab", "[a-c]", "[^ab\\n]", "x", "[0-9]", "é", "日"]
        text = ""
        for _ in range(self.random.randint(1, 3)):
            atom = self.random.choice(atoms)
            if depth < 2 and self.random.random() < 0.4:
                atom = f"{self.regex(depth + 1)}|{self.regex(depth + 1)}"
            text += f"({atom})" + self.random.choice(["", "", "*", "+", "?", "{1,3}", "{2}"])
        return text

    def schema(self, depth=0):
        pick = self.random.randrange(11 if depth < 3 else 6)
        if pick == 0:
            return {"type": "string"}
        if pick == 1:
            return {"type": "string", "minLength": self.random.randrange(3), "maxLength": 3 + self.random.randrange(9)}
        if pick == 2:
            return {"type": "integer", "minimum": self.random.randrange(1, 50), "maximum": 50 + self.random.randrange(900)}
        if pick == 3:
            return {"enum": self.random.sample(["a", "ab", "abc", "the", "é", "x y"], 3)}
        if pick == 4:
            return {"type": self.random.choice(["boolean", "null"])}
        if pick == 5:
            return {"type": "string", "pattern": f"^({self.regex(1)})$"}
        if pick in (6, 7):
            return {"type": "array", "items": self.schema(depth + 1), "minItems": self.random.randrange(2),
                    "maxItems": 2 + self.random.randrange(3)}
        if pick == 8:
            return {"anyOf": [self.schema(depth + 1), self.schema(depth + 1)]}
        names = self.random.sample(["a", "ab", "name", "id", "é"], 3)
        return {"type": "object", "properties": {name: self.schema(depth + 1) for name in names},
                "required": self.random.sample(names, self.random.randrange(3)), "additionalProperties": False}

    def gbnf(self):
        def part():
            return " ".join(self.random.choice(['"a"', '"the "', "[0-9]", '"(" r%d ")"' % self.random.randrange(3), '"b"?',
                                                '("x" | "yz")', "[^a-z\\n]"]) for _ in range(self.random.randint(1, 3)))
        rules = ["root ::= r0 | r1"]
        for i in range(3):
            ways = [part() for _ in range(self.random.randint(1, 2))] + [f'"{i}"']  # each can end
            rules.append(f"r{i} ::= " + " | ".join(ways))
        return "\n".join(rules) + "\n"


class Ours:
    """The built library, a line at a time."""

    def __init__(self, binary):
        self.process = subprocess.Popen([binary], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)

    def ask(self, **line):
        self.process.stdin.write(json.dumps(line) + "\n")
        self.process.stdin.flush()
        return json.loads(self.process.stdout.readline())

    def close(self):
        self.process.stdin.close()
        self.process.wait()
        self.process.stdout.close()


def bits(mask):
    return [bool(mask[byte // 8] >> byte % 8 & 1) for byte in range(256)]


class Differences(unittest.TestCase):
    def setUp(self):
        self.ours = Ours(BINARY)
        self.addCleanup(self.ours.close)
        self.used = {}
        self.one_sided = []  # forms that one of the two refuses

    def explain(self, kind, text, byte, ours, theirs):
        for known, rule, reason in EXPLAINED:
            if known == kind and rule(text, byte, ours, theirs):
                self.used[reason] = self.used.get(reason, 0) + 1
                return True
        return False

    def compare(self, kind, form, grammar, seed):
        """The number of states whose masks were compared, or 0 where both refuse the form."""
        answer = self.ours.ask(kind=kind, form=form, seed=seed, walks=3, steps=25)
        other = llguidance.LLMatcher(self.tokenizer, grammar)
        if "error" in answer or other.is_error():
            if ("error" in answer) != other.is_error():
                self.one_sided.append((form, answer.get("error"), other.get_error()))
            return 0
        states = 0
        for walk in answer["walks"]:
            self.assertNotIn("error", walk, form)
            text = bytes.fromhex(walk["text"])
            other.reset()
            for at, (mask, ends) in enumerate(zip(walk["masks"], walk["ends"])):
                states += 1
                self.assertEqual(other.is_accepting(), ends, f"the end of {text[:at]} in {form}")
                # One that can only end says so by being stopped.
                theirs = [False] * 256 if other.is_stopped() else bits(other.compute_bitmask())
                differ = [byte for byte, pair in enumerate(zip(bits(bytes.fromhex(mask)), theirs)) if pair[0] != pair[1]]
                for byte in differ:
                    self.assertTrue(self.explain(kind, text[:at], byte, not theirs[byte], theirs[byte]),
                                    f"{kind} {form}: behind {text[:at]} byte {bytes([byte])} is {'not ' * theirs[byte]}taken here")
                if at < len(text) and not (theirs[text[at]] and other.consume_token(text[at])):
                    break  # into what was explained
        return states

    def run_kind(self, kind, least, grammar_of):
        self.tokenizer = llguidance.LLTokenizer("byte")
        forms = Forms(17)
        states = 0
        for i in range(ROUNDS):
            form = getattr(forms, kind)()
            form = form if isinstance(form, str) else json.dumps(form, ensure_ascii=False)
            states += self.compare(kind, form, grammar_of(form), i)
        print(f"{kind}: {states} masks, explained: {self.used}, refused by one: {self.one_sided}", file=sys.stderr)
        self.assertGreater(states, least)
        self.assertEqual(self.one_sided, [])

    @serving.needs(llguidance, "llguidance is not there; tools/python_env.sh installs it")
    def test_regexes_beside_llguidance(self):
        self.run_kind("regex", 2000, llguidance.LLMatcher.grammar_from_regex)

    @serving.needs(llguidance, "llguidance is not there; tools/python_env.sh installs it")
    def test_schemas_beside_llguidance(self):
        options = {"whitespace_flexible": False, "item_separator": ",", "key_separator": ":", "lenient": False}
        self.run_kind("schema", 2000,
                      lambda form: llguidance.LLMatcher.grammar_from_json_schema(form, defaults=options))

    @serving.needs(llguidance, "llguidance is not there; tools/python_env.sh installs it")
    def test_gbnf_beside_llguidance(self):
        self.run_kind("gbnf", 1500, lambda form: llguidance.LLMatcher.grammar_from_lark(gbnf_to_lark(form)))

    def test_regexes_beside_python(self):
        forms = Forms(23)
        texts = matched = 0
        for i in range(ROUNDS * 2):
            form = forms.regex()
            answer = self.ours.ask(kind="regex", form=form, seed=i, walks=4, steps=12, texts=["", "ab", "abab", "éx", "日1", "aaabbb"])
            self.assertIn("walks", answer, form)
            given = ["", "ab", "abab", "éx", "日1", "aaabbb"]
            for k, walk in enumerate(answer["walks"]):
                text = bytes.fromhex(walk["text"])
                for at, ends in enumerate(walk["ends"]):
                    try:
                        beginning = text[:at].decode()
                    except UnicodeDecodeError:
                        self.assertFalse(ends, f"{form} ends inside a character")
                        continue
                    self.assertEqual(re.fullmatch(form, beginning) is not None, ends, f"{form} and {beginning!r}")
                    texts += 1
                    matched += ends
                if k < len(given) and text != given[k].encode():  # it was cut: then it cannot match
                    self.assertIsNone(re.fullmatch(form, given[k]), f"{form} and {given[k]!r}")
        self.assertGreater(matched, texts // 20)


if __name__ == "__main__":
    BINARY = sys.argv.pop(1)
    unittest.main()

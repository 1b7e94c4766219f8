"""How answers are drawn when a request does not say: in every dialect, by every way to the model."""
import json
import subprocess
import tempfile
import unittest

import serving
from serving import Server, needs_model

QUESTION = "Tell me about rivers."
MESSAGES = [{"role": "user", "content": QUESTION}]
AUTHORS = {"temperature": 0.2, "top_p": 0.9, "min_p": 0}
OPENAI = {"temperature": 1, "top_p": 1, "min_p": 0}
TOKENS = 24


def drawn(values):
    return {name: values[name] for name in ("temperature", "top_p", "min_p")}


def text_of(answer):
    """What an answer says, whatever its dialect."""
    if "choices" in answer:
        choice = answer["choices"][0]
        return choice["text"] if "text" in choice else choice["message"]["content"]
    if "output" in answer:
        return answer["output"][0]["content"][0]["text"]
    return answer["content"][0]["text"]


DIALECTS = {
    "/v1/chat/completions": {"messages": MESSAGES, "max_tokens": TOKENS},
    "/v1/completions": {"prompt": QUESTION, "max_tokens": TOKENS},
    "/v1/messages": {"messages": MESSAGES, "max_tokens": TOKENS, "model": serving.MODEL.stem},
    "/v1/responses": {"input": QUESTION, "max_output_tokens": TOKENS, "store": False},
}
BATCHED = ("/v1/chat/completions", "/v1/completions", "/v1/responses")


@needs_model
class DefaultsTest(unittest.TestCase):
    def test_the_default_model_has_its_authors_values(self):
        with Server() as server:
            model = server.get("/v1/models").json()["data"][0]
            self.assertEqual((drawn(model["sampling"]), model["sampling"]["from"]), (AUTHORS, "authors"))
            for seed in range(3):
                said = server.complete(QUESTION, max_tokens=TOKENS, seed=seed).json()
                asked = server.complete(QUESTION, max_tokens=TOKENS, seed=seed, **AUTHORS).json()
                self.assertEqual(text_of(said), text_of(asked))
            self.explained(server, {}, AUTHORS)
            self.explained(server, {"temperature": 1.5, "min_p": 0.25}, {**AUTHORS, "temperature": 1.5, "min_p": 0.25})
            response = server.post("/v1/responses", DIALECTS["/v1/responses"]).json()
            self.assertEqual((response["temperature"], response["top_p"]), (0.2, 0.9))

    def explained(self, server, fields, expected):
        stream = server.stream(max_tokens=2000, **fields)
        frame = next(line for line in iter(stream.response.readline, b"") if line.startswith(b"data: "))
        found = server.get(f"/v1/requests/{json.loads(frame[6:])['id']}").json()
        stream.close()
        self.assertEqual(drawn(found["sampling"]), expected, found)

    def test_openai_is_temperature_one_and_nothing_else(self):
        with Server("--sampling-defaults", "openai") as server:
            model = server.get("/v1/models").json()["data"][0]
            self.assertEqual((drawn(model["sampling"]), model["sampling"]["from"]), (OPENAI, "openai"))
            said = server.complete(QUESTION, max_tokens=TOKENS, seed=1).json()
            asked = server.complete(QUESTION, max_tokens=TOKENS, seed=1, **OPENAI).json()
            self.assertEqual(text_of(said), text_of(asked))
            calm = server.complete(QUESTION, max_tokens=TOKENS, seed=1, **AUTHORS).json()
            self.assertNotEqual(text_of(said), text_of(calm))

    def test_an_operators_values_count_in_every_dialect_and_a_clients_before_them(self):
        with Server("--model-sampling", "* temperature=5", "--model-sampling", f"{serving.MODEL.stem} temperature=0") as server:
            model = server.get("/v1/models").json()["data"][0]
            self.assertEqual((model["sampling"]["temperature"], model["sampling"]["from"]), (0, "operator"))
            greedy = {}
            for path, body in DIALECTS.items():
                with self.subTest(path=path):
                    first, second = (text_of(server.post(path, body).json()) for _ in range(2))
                    self.assertEqual(first, second, "greedy, whatever the seed")
                    self.assertEqual(first, text_of(server.post(path, {**body, "temperature": 0}).json()))
                    own = 1 if path == "/v1/messages" else 2
                    self.assertNotEqual(first, text_of(server.post(path, {**body, "temperature": own, "top_p": 1}).json()))
                    greedy[path] = first
            for path in BATCHED:
                body = DIALECTS[path]
                rows = serving.run_batch(server, path, [body, {**body, "temperature": 2, "top_p": 1}])
                said = [text_of(rows[i]["response"]["body"]) for i in ("0", "1")]
                self.assertEqual(said[0], greedy[path], path)
                self.assertNotEqual(said[1], greedy[path], path)


class OtherModelsTest(unittest.TestCase):
    def test_files_go_first_then_the_general_rule(self):
        with tempfile.TemporaryDirectory() as folder:
            plain = serving.tiny_model(folder, "plain")
            said = serving.tiny_model(folder, "said")
            (said / "generation_config.json").write_text(json.dumps({"temperature": 0.6, "top_k": 20}))
            with Server(models=(plain, said)) as server:
                models = {model["id"]: model["sampling"] for model in server.get("/v1/models").json()["data"]}
            self.assertEqual((drawn(models["plain"]), models["plain"]["from"]),
                             ({"temperature": 0.7, "top_p": 0.95, "min_p": 0.05}, "general"))
            self.assertEqual((models["said"]["temperature"], models["said"]["top_k"], models["said"]["top_p"],
                              models["said"]["from"]), (0.6, 20, 1, "files"))

    def test_models_that_come_later_have_them_too(self):
        with tempfile.TemporaryDirectory() as folder:
            with Server("--model-sampling", "* top_k=3", models=(serving.tiny_model(folder),)) as server:
                serving.tiny_model(server.model_folder, "late")
                server.signal(1)
                self.assertTrue(server.settle(lambda: server.complete("x", model="late", max_tokens=1).status == 200))
                self.assertEqual(server.get("/v1/models/late").json()["sampling"]["top_k"], 3)

    def test_what_makes_no_sense_is_said_at_the_start(self):
        with tempfile.TemporaryDirectory() as folder:
            model = serving.tiny_model(folder)
            for wish, expected in (("tiny", "a model's name and then values"), ("tiny heat=1", "'heat=1': it must be"),
                                   ("tiny top_p=2", "top_p is 2, it must be above 0 and at most 1"),
                                   ("other top_p=0.5", "no model is called 'other'")):
                done = serving.run("serve", "--port", "0", "--state-dir", f"{folder}/state", "--model-folder",
                                   f"{folder}/none", "--model", model, "--model-sampling", wish)
                self.assertEqual(done.returncode, 1, done.stderr)
                self.assertIn(expected, done.stderr)


@needs_model
class CommandsTest(unittest.TestCase):
    def test_run(self):
        said, asked, openai, plain = (self.run_text(*more) for more in (
            (), ("--temperature", "0.2", "--top-p", "0.9", "--min-p", "0"), ("--sampling-defaults", "openai"),
            ("--temperature", "1", "--top-p", "1", "--min-p", "0")))
        self.assertEqual(said, asked)
        self.assertEqual(openai, plain)
        self.assertNotEqual(said, plain)

    def run_text(self, *more):
        done = serving.run("run", "--model", serving.MODEL, "-p", QUESTION, "-n", TOKENS, "--seed", 5, *more)
        self.assertEqual(done.returncode, 0, done.stderr)
        return done.stdout

    def test_chat(self):
        def chat(*more):
            done = subprocess.run([serving.BINARY, "chat", "--model", serving.MODEL, "-n", str(TOKENS), "--seed", "5", *more],
                                  input=QUESTION + "\n", capture_output=True, text=True, timeout=serving.PATIENCE_S,
                                  env=serving.clean_environment())
            self.assertEqual(done.returncode, 0, done.stderr)
            return done.stdout

        self.assertEqual(chat(), chat("--temperature", "0.2", "--top-p", "0.9"))
        self.assertEqual(chat("--sampling-defaults", "openai"), chat("--temperature", "1", "--top-p", "1"))

    def test_inspect(self):
        self.assertIn("Sampling            temperature 0.2, top_p 0.9 (as its authors say)",
                      serving.run("inspect", serving.MODEL).stdout)
        shown = json.loads(serving.run("inspect", serving.MODEL, "--json").stdout)["sampling"]
        self.assertEqual((drawn(shown), shown["from"]), (AUTHORS, "authors"))
        with tempfile.TemporaryDirectory() as folder:
            shown = json.loads(serving.run("inspect", serving.tiny_model(folder), "--json").stdout)["sampling"]
        self.assertEqual((shown["temperature"], shown["from"]), (0.7, "general"))


if __name__ == "__main__":
    unittest.main(verbosity=2)

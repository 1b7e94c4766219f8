"""Embeddings: many at once are faster than one at a time, and what the command line says of pooling."""
import json
import pathlib
import tempfile
import time
import unittest

import serving
from encoders import tiny_encoder

TEXTS = [f"{letter}{number}" for number in range(8) for letter in "abcdefgh"]
RATIO = 5
ROUNDS = 5


class SpeedTest(unittest.TestCase):
    def ask(self, connection, texts):
        body = json.dumps({"input": texts, "encoding_format": "base64"})
        connection.request("POST", "/v1/embeddings", body, {"Content-Type": "application/json"})
        answer = connection.getresponse()
        parsed = json.loads(answer.read())
        self.assertEqual(answer.status, 200, parsed)
        return [item["embedding"] for item in parsed["data"]]

    def ratios(self, model):
        """How many times as fast 64 short texts are in one request as in 64, round by round."""
        # A last token's vector may share prefixes; a mean computes every row each time.
        with serving.Server("--pooling", "mean", models=(model,)) as server:
            connection = server.connect()
            expected = self.ask(connection, TEXTS)  # and it is warm
            ratios = []
            for _ in range(ROUNDS):
                started = time.monotonic()
                self.assertEqual([self.ask(connection, [text])[0] for text in TEXTS], expected)
                between = time.monotonic()
                self.assertEqual(self.ask(connection, TEXTS), expected)
                ratios.append((between - started) / (time.monotonic() - between))
            connection.close()
        print(f"{model.name}: 64 texts at once are {', '.join(f'{ratio:.1f}' for ratio in sorted(ratios))} times as fast")
        return sorted(ratios)

    def test_sixty_four_texts_at_once(self):
        with tempfile.TemporaryDirectory() as folder:
            self.assertGreaterEqual(self.ratios(serving.tiny_model(folder))[ROUNDS // 2], RATIO)

    def test_sixty_four_texts_of_an_encoder_at_once(self):
        with tempfile.TemporaryDirectory() as folder:
            self.assertGreaterEqual(self.ratios(tiny_encoder(folder))[ROUNDS // 2], RATIO)

    @serving.needs_model
    def test_a_real_model_is_not_slower(self):
        # Without AMX a core computes as much as it can from four rows on, so that a batch saves little more than requests.
        self.assertGreater(self.ratios(serving.MODEL)[ROUNDS // 2], 1)


class InspectTest(unittest.TestCase):
    def test_names_the_pooling_and_who_says_so(self):
        with tempfile.TemporaryDirectory() as folder:
            model = serving.tiny_model(folder)
            self.assertIn("none (--pooling sets one)", serving.run("inspect", model).stdout)
            pathlib.Path(model, "1_Pooling").mkdir()
            config = pathlib.Path(model, "1_Pooling/config.json")
            config.write_text('{"pooling_mode_lasttoken": true}')
            self.assertIn("last (1_Pooling/config.json)", serving.run("inspect", model).stdout)
            said = json.loads(serving.run("inspect", model, "--json").stdout)
            self.assertEqual(said["pooling"], {"kind": "last", "from": "1_Pooling/config.json"})
            config.write_text('{"pooling_mode_cls_token": true}')
            self.assertIn("cannot be used", serving.run("inspect", model).stdout)

    def test_an_encoder_that_is_refused_is_not_shown_as_one_that_writes(self):
        with tempfile.TemporaryDirectory() as folder:
            model = tiny_encoder(folder)
            config = json.loads(pathlib.Path(model, "config.json").read_text())
            for change in ({"position_embedding_type": "relative_key"}, {"hidden_act": "odd"}, {"is_decoder": True}, {"model_type": "roberta"}):
                with self.subTest(change):
                    pathlib.Path(model, "config.json").write_text(json.dumps({**config, **change}))
                    shown = serving.run("inspect", model).stdout
                    self.assertRegex(shown, r"Loads +no: ")
                    self.assertNotIn("KV cache", shown)
                    self.assertNotIn("Tool calls", shown)
                    said = json.loads(serving.run("inspect", model, "--json").stdout)
                    self.assertFalse(said["loads"])
                    self.assertEqual((said["dialog"], said["sampling"], said["memory"]), (None, None, []))
                    refused = serving.run("run", "--model", model, "-p", "a").stderr
                    self.assertIn(said["refused"], refused)

    def test_an_encoder_is_called_one_and_writes_no_text(self):
        with tempfile.TemporaryDirectory() as folder:
            model = tiny_encoder(folder)
            shown = serving.run("inspect", model).stdout
            self.assertIn("makes vectors of whole texts", shown)
            self.assertIn("mean (1_Pooling/config.json)", shown)
            self.assertNotIn("KV cache", shown)
            said = json.loads(serving.run("inspect", model, "--json").stdout)
            self.assertEqual((said["encoder"], said["kv_bytes_per_token"], said["memory"]), (True, None, []))
            self.assertEqual((said["loads"], said["refused"]), (True, None))
            refused = serving.run("run", "--model", model, "-p", "a")
            self.assertNotEqual(refused.returncode, 0)
            self.assertIn("an encoder writes no text", refused.stderr)


if __name__ == "__main__":
    unittest.main()

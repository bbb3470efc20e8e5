#!/usr/bin/env python3
"""The teacher's vectors of sentences: mean-pooled MiniLM-L6, of length one, as float16.

    teach.py --model model.onnx --tokenizer tokenizer.json --sentences sentences.txt --out vectors.npy

Writes those it took beside them, as `vectors.npy.txt`.
"""
import argparse

import numpy
import openvino
from tokenizers import Tokenizer

# Sentences of more tokens are left out, here and in the terms.
BATCH, LONGEST, WIDTH = 64, 34, 384


def main():
    parser = argparse.ArgumentParser()
    for name in ("model", "tokenizer", "sentences", "out"):
        parser.add_argument(f"--{name}", required=True)
    parser.add_argument("--threads", type=int, default=1)
    arguments = parser.parse_args()
    tokenizer = Tokenizer.from_file(arguments.tokenizer)
    tokenizer.no_truncation()
    tokenizer.no_padding()
    settings = {"INFERENCE_NUM_THREADS": arguments.threads, "INFERENCE_PRECISION_HINT": "bf16"}
    core = openvino.Core()
    model = core.compile_model(core.read_model(arguments.model), "CPU", settings)
    lines = open(arguments.sentences, encoding="utf-8").read().split("\n")[:-1]
    tokens = []
    for start in range(0, len(lines), 10000):
        tokens += [coded.ids for coded in tokenizer.encode_batch(lines[start : start + 10000])]
    short = [index for index, ids in enumerate(tokens) if len(ids) <= LONGEST]
    lines, tokens = [lines[index] for index in short], [tokens[index] for index in short]
    open(arguments.out + ".txt", "w", encoding="utf-8").write("\n".join(lines) + "\n")
    order = sorted(range(len(lines)), key=lambda index: len(tokens[index]))
    vectors = numpy.zeros((len(lines), WIDTH), numpy.float16)
    for start in range(0, len(order), BATCH):
        chosen = order[start : start + BATCH]
        ids = numpy.zeros((len(chosen), len(tokens[chosen[-1]])), numpy.int64)
        mask = numpy.zeros_like(ids)
        for row, index in enumerate(chosen):
            ids[row, : len(tokens[index])] = tokens[index]
            mask[row, : len(tokens[index])] = 1
        given = {"input_ids": ids, "attention_mask": mask, "token_type_ids": numpy.zeros_like(ids)}
        hidden = model(given)[0]
        if hidden.ndim == 3:
            hidden = (hidden * mask[..., None]).sum(1) / mask.sum(1)[:, None]
        vectors[chosen] = hidden / numpy.linalg.norm(hidden, axis=1, keepdims=True)
        if start % (BATCH * 500) == 0:
            print(start, "of", len(order), flush=True)
    numpy.save(arguments.out, vectors)


if __name__ == "__main__":
    main()

"""A pool of sentence-transformers; `failing`: pools are left behind when encoding raises."""

import sys
import tempfile
import time
from pathlib import Path

import torch
from sentence_transformers import SentenceTransformer
from sentence_transformers.sentence_transformer.modules import Pooling, Transformer
from transformers import BertConfig, BertModel, BertTokenizer

TEXTS = ["a tiny text", "another text", "the last text"] * 40


def tiny_model(folder):
    words = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "a", "the", "text", "tiny"]
    Path(folder, "vocab.txt").write_text("\n".join(words))
    torch.manual_seed(0)
    config = BertConfig(
        vocab_size=len(words),
        hidden_size=16,
        num_hidden_layers=1,
        num_attention_heads=2,
        intermediate_size=16,
    )
    BertModel(config).save_pretrained(folder)
    BertTokenizer(str(Path(folder, "vocab.txt"))).save_pretrained(folder)
    body = Transformer(folder)
    return SentenceTransformer(modules=[body, Pooling(16)], device="cpu")


def embed(model, texts):
    pool = model.start_multi_process_pool(["cpu"])
    vectors = model.encode(texts, pool=pool)
    model.stop_multi_process_pool(pool)
    return vectors


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as folder:
        model = tiny_model(folder)
        if "failing" in sys.argv:
            for batch in range(4):
                try:
                    embed(model, [*TEXTS, 7])
                except Exception as error:  # noqa: BLE001
                    print("a batch failed:", error)
                if batch == 1:
                    print("fault", flush=True)
            time.sleep(60)
        pool = model.start_multi_process_pool(["cpu", "cpu"])
        total = 0.0
        for _ in range(40):
            total += float(abs(model.encode(TEXTS, pool=pool, chunk_size=20)).sum())
            time.sleep(0.1)
        model.stop_multi_process_pool(pool)
    print("result", round(total, 1), flush=True)

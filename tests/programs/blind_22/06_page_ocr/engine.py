"""A tiny template-matching OCR engine with a file based interface."""
import os
import tempfile

import numpy as np

GLYPH = 16
ALPHABET = "abcdefghijklmnop"


def templates(seed=1):
    rng = np.random.default_rng(seed)
    return rng.random((len(ALPHABET), GLYPH, GLYPH)).astype(np.float32)


TEMPLATES = templates()


def save_page(page):
    """Write a page where the engine can read it; returns the base name."""
    handle, filename = tempfile.mkstemp(prefix="ocr_", suffix=".npy")
    with open(filename, "wb") as out:
        np.save(out, page)
    return filename


def cleanup(filename):
    try:
        os.remove(filename)
    except FileNotFoundError:
        pass


def run_engine(filename):
    page = np.load(filename).astype(np.float32) / 255.0
    rows, cols = page.shape[0] // GLYPH, page.shape[1] // GLYPH
    cells = page.reshape(rows, GLYPH, cols, GLYPH).swapaxes(1, 2).reshape(-1, GLYPH * GLYPH)
    scores = cells @ TEMPLATES.reshape(len(ALPHABET), -1).T
    best = scores.argmax(1)
    text = "".join(ALPHABET[i] for i in best)
    return [text[r * cols:(r + 1) * cols] for r in range(rows)], float(scores.max(1).mean())


def page_to_lines(page):
    filename = save_page(page)
    try:
        return run_engine(filename)
    finally:
        cleanup(filename)

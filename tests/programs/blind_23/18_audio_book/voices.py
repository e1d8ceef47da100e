"""Loading of voices; a load that takes too long is cut off, as the model hub sometimes stalls."""
import faulthandler
import json
import logging
import pathlib
import time

import numpy as np

log = logging.getLogger("voices")
LOAD_LIMIT = 15.0


class Voice:
    def __init__(self, name, phonemes, style):
        self.name, self.phonemes, self.style = name, phonemes, style

    def speak(self, text, rate=8000):
        t = np.arange(int(rate * 0.07)) / rate
        parts = []
        for letter in text.lower():
            pitch = self.phonemes.get(letter)
            if pitch is None:
                parts.append(np.zeros(len(t) // 2))
            else:
                wave = sum(weight * np.sin(2 * np.pi * pitch * (k + 1) * t) for k, weight in enumerate(self.style))
                parts.append(wave * np.hanning(len(t)))
        return np.concatenate(parts).astype(np.float32)


def write_voice_pack(folder, names, with_style):
    folder = pathlib.Path(folder)
    for number, name in enumerate(names):
        target = folder / name
        target.mkdir(parents=True)
        table = {chr(97 + i): 90 + 12 * number + 7 * i for i in range(26)}
        (target / "phonemes.json").write_text(json.dumps(table))
        if name in with_style:
            np.save(target / "style.npy", np.linspace(1.0, 0.1 * (number + 1), 12))


def load_voice(folder, name, trace_file):
    """Read the voice from its pack; dumps the stacks and gives up when the load hangs."""
    faulthandler.dump_traceback_later(LOAD_LIMIT, exit=True, file=trace_file)
    began = time.perf_counter()
    pack = pathlib.Path(folder) / name
    phonemes = json.loads((pack / "phonemes.json").read_text())
    try:
        style = np.load(pack / "style.npy")
    except FileNotFoundError:
        log.warning("%s has no style, using the neutral one", name)
        return Voice(name, phonemes, np.ones(6) / 6)
    faulthandler.cancel_dump_traceback_later()
    log.info("%s loaded in %.2fs", name, time.perf_counter() - began)
    return Voice(name, phonemes, style)

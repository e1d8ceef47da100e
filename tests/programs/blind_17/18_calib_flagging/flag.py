"""Outlier flagging of calibration solutions along the time axis."""
import time

import numpy as np


def smooth(values, weights, width):
    """Weighted running polynomial of order two."""
    n = len(values)
    half = width // 2
    out = np.empty(n)
    for i in range(n):
        lo, hi = max(0, i - half), min(n, i + half + 1)
        sel = weights[lo:hi] > 0
        x = np.arange(lo, hi)[sel] - i
        coef = np.polyfit(x, values[lo:hi][sel], 2)
        out[i] = coef[-1]
    return out


def flag_solutions(store, coord, width, max_cycles, max_rms):
    """Flags one series in place; returns its coordinates, the flagged share and the time it took."""
    started = time.perf_counter()
    values, weights = store.read(coord)
    for cycle in range(max_cycles):
        model = smooth(values, weights, width)
        residual = np.where(weights > 0, values - model, 0.0)
        rms = 1.4826 * np.median(np.abs(residual[weights > 0]))
        bad = (np.abs(residual) > max_rms * rms) & (weights > 0)
        if not bad.any():
            break
        weights[bad] = 0
    store.write_weights(coord, weights)
    return coord, round(float(1.0 - weights.mean()), 4), time.perf_counter() - started

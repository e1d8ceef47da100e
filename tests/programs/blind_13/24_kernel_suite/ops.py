"""The operators of the suite: the torch side, the numpy reference and the tolerance."""
import numpy as np
import torch


def as64(fn):
    return lambda x: fn(x.astype(np.float64))


OPS = {
    "exp": (torch.exp, as64(np.exp), 1e-5),
    "log": (torch.log, as64(np.log), 1e-5),
    "sqrt": (torch.sqrt, as64(np.sqrt), 1e-5),
    "rsqrt": (torch.rsqrt, as64(lambda x: 1 / np.sqrt(x)), 1e-4),
    "sigmoid": (torch.sigmoid, as64(lambda x: 1 / (1 + np.exp(-x))), 1e-5),
    "tanh": (torch.tanh, as64(np.tanh), 1e-5),
    "sin": (torch.sin, as64(np.sin), 1e-5),
    "cos": (torch.cos, as64(np.cos), 1e-5),
    "relu": (torch.relu, as64(lambda x: np.maximum(x, 0)), 1e-6),
    "log1p": (torch.log1p, as64(np.log1p), 1e-5),
    "erf_scaled": (lambda x: torch.erf(x).half(), lambda x: torch.erf(torch.from_numpy(x)).numpy(), 1e-3),
    "square": (torch.square, as64(np.square), 1e-5),
    "abs": (torch.abs, as64(np.abs), 1e-6),
    "floor": (torch.floor, as64(np.floor), 1e-6),
    "reciprocal": (torch.reciprocal, as64(lambda x: 1 / x), 1e-4),
    "softplus": (torch.nn.functional.softplus, as64(lambda x: np.log1p(np.exp(x))), 1e-5),
    "expm1": (torch.expm1, as64(np.expm1), 1e-5),
    "atan": (torch.atan, as64(np.arctan), 1e-5),
}

import itertools
import time

import numpy as np

from remote import get, remote


def grid(depths, rates, penalties):
    return [dict(depth=d, rate=r, penalty=p) for d, r, p in itertools.product(depths, rates, penalties)]


def dataset(n=1500, features=12, seed=0):
    rng = np.random.default_rng(seed)
    x = rng.normal(size=(n, features))
    y = np.tanh(x[:, 0] * 1.5 + x[:, 1] * x[:, 2]) + rng.normal(0, 0.1, n)
    return x, y


def expand(x, depth):
    return np.concatenate([x ** k for k in range(1, depth + 1)], axis=1)


@remote
def train_fold(config, fold, folds):
    x, y = dataset()
    x = expand(x, config["depth"])
    x /= x.std(axis=0)
    held = np.arange(len(y)) % folds == fold
    w = np.zeros(x.shape[1])
    for _ in range(150):
        grad = x[~held].T @ (x[~held] @ w - y[~held]) / (~held).sum() + config["penalty"] * w
        w -= config["rate"] * 0.1 * grad
    time.sleep(0.3)
    return float(np.mean((x[held] @ w - y[held]) ** 2))


@remote
def evaluate_config(config, folds):
    refs = [train_fold.remote(config, fold, folds) for fold in range(folds)]
    return float(np.mean(get(refs)))

import numpy as np


class LightCurveModel:
    def __init__(self, n_epochs, n_bands, seed=0):
        rng = np.random.default_rng(seed)
        self.t = np.sort(rng.uniform(0, 200, n_epochs))
        self.flux = rng.normal(1.0, 0.05, (n_bands, n_epochs))
        self.err = np.full((n_bands, n_epochs), 0.05)
        self.templates = rng.normal(size=(n_bands, n_epochs // 8, 8))

    def lnprior(self, theta):
        return -0.5 * float(np.sum(theta ** 2))

    def lnprob(self, theta):
        sl = slice(0, 2000)
        pred = 1.0 + 0.01 * theta[0] * np.sin(self.t[sl] / (1 + abs(theta[1])))
        chi2 = np.sum(((self.flux[:, sl] - pred) / self.err[:, sl]) ** 2)
        return self.lnprior(theta) - 0.5 * float(chi2)

import numpy as np
from numpy.lib.stride_tricks import as_strided


def frames(samples, npts, width, step):
    """Overlapping windows as a view, without a copy."""
    count = 1 + (npts - width) // step
    item = samples.strides[0]
    return as_strided(samples, shape=(count, width), strides=(step * item, item), writeable=False)


class StationFeatures:
    def __init__(self, window, hop, block=2048):
        self.window = window
        self.hop = hop
        self.block = block

    def _moments(self, view):
        centred = view - view.mean(axis=1, keepdims=True)
        power = np.square(centred).mean(axis=1)
        fourth = np.square(np.square(centred)).mean(axis=1)
        return np.sqrt(power), fourth / np.maximum(np.square(power), 1e-12)

    def _crossings(self, view):
        return (np.signbit(view[:, 1:]) != np.signbit(view[:, :-1])).mean(axis=1)

    def __call__(self, header, samples):
        rate = header["sampling_rate"]
        view = frames(samples, header["npts"], int(self.window * rate), int(self.hop * rate))
        rms, kurtosis, crossings = [], [], []
        for start in range(0, len(view), self.block):
            part = view[start:start + self.block]
            r, k = self._moments(part)
            rms.append(r)
            kurtosis.append(k)
            crossings.append(self._crossings(part))
        rms, kurtosis, crossings = map(np.concatenate, (rms, kurtosis, crossings))
        return {"rms": float(np.median(rms)), "kurtosis": float(np.median(kurtosis)),
                "crossings": float(np.median(crossings)), "peak": float(rms.max()), "windows": len(rms)}

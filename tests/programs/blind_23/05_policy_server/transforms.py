import numpy as np

from array_typing import typed


class ResizeNearest:
    def __init__(self, size):
        self.size = size

    @typed(image="uint8[*,*,3]")
    def __call__(self, data):
        h, w, _ = data["image"].shape
        rows = np.arange(self.size) * h // self.size
        cols = np.arange(self.size) * w // self.size
        return {**data, "image": data["image"][rows][:, cols]}


class ToFloatImage:
    @typed(image="uint8[*,*,3]")
    def __call__(self, data):
        return {**data, "image": data["image"].astype(np.float32) / 127.5 - 1.0}


class ChannelsFirst:
    @typed(image="float32[*,*,3]")
    def __call__(self, data):
        return {**data, "image": data["image"].transpose(2, 0, 1)}


class Normalize:
    def __init__(self, key, mean, std, spec):
        self.key, self.mean, self.std = key, mean, std
        self._apply = typed(**{key: spec})(type(self)._scale).__get__(self)

    def _scale(self, data):
        return {**data, self.key: ((data[self.key] - self.mean) / self.std).astype(np.float32)}

    def __call__(self, data):
        return self._apply(data)


class ClipState:
    @typed(state="float32[*]")
    def __call__(self, data):
        return {**data, "state": data["state"].clip(-5, 5)}


class Unnormalize:
    def __init__(self, mean, std):
        self.mean, self.std = mean, std

    @typed(actions="float32[*,*]", state="float32[*]")
    def __call__(self, data):
        return {**data, "actions": (data["actions"] * self.std + self.mean).astype(np.float32)}


class AbsoluteActions:
    """The policy predicts steps relative to the current joints; the gripper stays absolute."""

    @typed(actions="float32[*,*]", state="float32[*]")
    def __call__(self, data):
        actions = data["actions"].copy()
        actions[:, :-1] += data["state"][:-1]
        return {**data, "actions": actions}


class LimitStep:
    def __init__(self, limit):
        self.limit = limit

    @typed(actions="float32[*,*]", state="float32[*]")
    def __call__(self, data):
        low, high = data["state"] - self.limit, data["state"] + self.limit
        return {**data, "actions": data["actions"].clip(low, high).astype(np.float32)}


def build_pipeline(state_dim, image):
    rng = np.random.default_rng(5)
    mean = rng.normal(0, 0.2, state_dim).astype(np.float32)
    std = rng.uniform(0.5, 1.5, state_dim).astype(np.float32)
    inputs = [ResizeNearest(image), ToFloatImage(),
              Normalize("image", np.float32(0.05), np.float32(0.6), "float32[*,*,3]"), ChannelsFirst(),
              Normalize("state", mean, std, f"float32[{state_dim}]"), ClipState()]
    outputs = [Unnormalize(mean, std), AbsoluteActions(), LimitStep(np.float32(0.4))]
    return inputs, outputs

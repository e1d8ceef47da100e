"""Containers for the state of a partition. Each field knows its container and the container its fields."""
import numpy as np


class Field:
    def __init__(self, owner, name, values):
        self.owner = owner
        self.name = name
        self.values = values


class FluidState:
    def __init__(self, mass, energy, momentum):
        self.mass = Field(self, "mass", mass)
        self.energy = Field(self, "energy", energy)
        self.momentum = Field(self, "momentum", momentum)

    @property
    def fields(self):
        return (self.mass, self.energy, self.momentum)

    def combine(self, other, factor):
        return FluidState(*[a.values + factor * b.values for a, b in zip(self.fields, other.fields)])

    def norm(self):
        return float(sum(np.square(f.values).mean() for f in self.fields))


def initial_state(cells, dofs, rank):
    x = np.linspace(0, 2 * np.pi, cells * dofs).reshape(cells, dofs)
    return FluidState(1 + 0.1 * np.sin(x + rank), 2.5 + 0.1 * np.cos(x), 0.3 * np.sin(2 * x))

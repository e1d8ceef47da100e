"""Shape and dtype checks for the functions that handle arrays.

@typed(state="float32[14]", image="uint8[*,*,3]") checks the entries of the dict that the function gets.
Code under a module listed in UNCHECKED (pytree and data class internals hand in placeholders) is exempt.
"""
import functools
import inspect
import os
import re

import numpy as np

UNCHECKED = {"_pytree", "dataclasses", "copyreg"}
SPEC = re.compile(r"(\w+)\[(.*)\]")


class ShapeError(TypeError):
    pass


def _caller_modules():
    for info in inspect.stack()[2:]:
        yield os.path.splitext(os.path.basename(info.filename))[0]


def checks_enabled():
    return not any(name in UNCHECKED for name in _caller_modules())


def check_array(name, value, spec):
    if not checks_enabled():
        return
    dtype, dims = SPEC.fullmatch(spec).groups()
    dims = [d.strip() for d in dims.split(",")] if dims else []
    if not isinstance(value, np.ndarray) or value.dtype != np.dtype(dtype):
        raise ShapeError(f"{name}: expected {spec}, got {type(value).__name__} {getattr(value, 'dtype', '')}")
    if len(dims) != value.ndim or any(d != "*" and int(d) != s for d, s in zip(dims, value.shape)):
        raise ShapeError(f"{name}: expected {spec}, got shape {value.shape}")


def typed(**specs):
    def wrap(fn):
        @functools.wraps(fn)
        def inner(self, data):
            for name, spec in specs.items():
                check_array(name, data[name], spec)
            return fn(self, data)
        return inner
    return wrap

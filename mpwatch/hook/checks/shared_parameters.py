"""Models passed to processes that train them, whose parameters are not shared.

Two cases are noted, which are hardly intended. A process steps an optimizer over parameters that
were shared when it started and are not any more. Or it steps a model that several running processes
received by fork, unshared, with nothing in their arguments to send a result back. Programs that
average parameters by other means are not examined.
"""

from __future__ import annotations

import functools
import itertools
import sys
import weakref
from types import MethodType

from ..safe import foreign_exceptions
from ..safe.exact import attributes, class_name, module_of_class
from . import load

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from typing import Any

_object_walk = load("object_walk")
is_module, is_tensor = _object_walk.is_module, _object_walk.is_tensor
walk: Callable[..., Iterator[tuple[str, Any]]] = _object_walk.walk
CHECKS = (1, 8, 64, 512)
"""Numbers of optimizer steps after which parameters are examined; the last one ends it."""
MODULES = 8
_WAYS_BACK = (
    "connection",
    "managers",
    "queues",
    "shared_memory",
    "sharedctypes",
)
"""Modules of `multiprocessing` by whose objects a child may send parameters back."""
_TOGETHER = ("deepspeed", "horovod", "mpi4py", "ray")
"""Packages that average parameters over processes."""


_OF_ANY_PROCESS = frozenset(
    (
        "_args",
        "_closed",
        "_config",
        "_identity",
        "_kwargs",
        "_name",
        "_parent_name",
        "_parent_pid",
        "_popen",
        "_target",
    )
)
"""Attributes that `multiprocessing` gives each process, 3.10 to 3.15."""


class SharedParameters:
    """The models that this process passes to children, and in a child those that it received."""

    __slots__ = ("_arrived", "_given", "_handle", "_note_event", "_steps")

    def __init__(self, note: Callable[..., None]) -> None:
        self._note_event = note
        self._given: dict[int, tuple[Any, str, list[Any]]] = {}
        """Model, target, and the processes started with it, by the model's `id`; all weakly."""
        self._arrived: list[tuple[Any, set[str], int]] = []
        """Model, parameters shared at the start, processes that received it; by weak reference."""
        self._handle: Any = None
        self._steps = 0

    def start(self, process: Any, target: str) -> None:
        """Remember the models of a process that is about to be forked; never raises."""
        try:
            self._start(process, target)
        except BaseException as error:
            if not foreign_exceptions.is_ours(error):
                raise

    def arrive(self, process: Any) -> None:
        """Examine the arguments of this new process; never raises."""
        try:
            if self._handle is None:
                self._arrive(process)
        except BaseException as error:
            if not foreign_exceptions.is_ours(error):
                raise

    def leave(self) -> None:
        """Remove the hook of optimizers."""
        if self._handle is not None:
            self._handle.remove()
            self._handle = None

    def _start(self, process: Any, target: str) -> None:
        for model in _models(process):
            known = self._given.get(id(model))
            if known is None or known[0]() is not model or known[1] != target:
                if len(self._given) >= MODULES:
                    self._given.clear()
                known = self._given[id(model)] = (weakref.ref(model), target, [])
            # A program may start processes for weeks; the weak references of freed ones go.
            known[2][:] = [each for each in known[2] if each() is not None]
            known[2].append(weakref.ref(process))

    def _arrive(self, process: Any) -> None:
        optimizers = sys.modules.get("torch.optim.optimizer")
        self._arrived = []
        for model in _models(process) if optimizers is not None else ():
            shared = {name for name, each in _parameters(model) if each.is_shared()}
            siblings = 0 if _can_send_back(process) else self._siblings(model)
            if shared or siblings > 1:
                self._arrived.append((weakref.ref(model), shared, siblings))
        if self._arrived and optimizers is not None:
            self._steps = 0
            self._handle = optimizers.register_optimizer_step_post_hook(self._stepped)

    def _siblings(self, model: Any) -> int:
        """Number of running processes that received this model, this one included.

        `Process.start` has just polled those that exited (`multiprocessing.process._cleanup`).
        """
        known = self._given.get(id(model))
        if known is None or known[0]() is not model:
            return 0
        processes = [each for each in (reference() for reference in known[2]) if each is not None]
        popens = (attributes(each).get("_popen") for each in processes)
        return sum(1 for popen in popens if getattr(popen, "returncode", None) is None)

    def _stepped(self, optimizer: Any, *_: Any) -> None:
        """Called after a step of any optimizer."""
        self._steps += 1
        if self._steps not in CHECKS:
            return
        try:
            if self._is_settled(optimizer) or self._steps >= CHECKS[-1]:
                self.leave()
        except BaseException as error:
            if not foreign_exceptions.is_ours(error):
                raise

    def _is_settled(self, optimizer: Any) -> bool:
        """Note parameters that are stepped and not shared; `True` if nothing is left to check."""
        if _is_synchronised():
            return True
        stepped = {id(each) for group in optimizer.param_groups for each in group["params"]}
        for reference, shared, siblings in self._arrived:
            model = reference()
            if model is None:
                continue
            private = [
                name
                for name, each in _parameters(model)
                if id(each) in stepped and each.device.type == "cpu" and not each.is_shared()
            ]
            undone = [name for name in private if name in shared]
            if undone or (private and not shared and siblings > 1):
                self._note(model, undone or private, "undone" if undone else "never", siblings)
                return True
        return False

    def _note(self, model: Any, names: list[str], how: str, siblings: int) -> None:
        shown = ", ".join(names[:4]) + (f" and {len(names) - 4} more" if len(names) > 4 else "")
        self._note_event(
            "parameters-not-shared",
            what=shown[:256],
            model=class_name(type(model))[:128],
            how=how,
            parameters=len(names),
            processes=siblings or None,
            frames=foreign_exceptions.frames_here(4),
        )


def _models(process: Any) -> list[Any]:
    """The models that a process receives, without those inside other models."""
    found: list[Any] = []
    for _, part in walk(_received(process), 3):
        if is_module(part) and not any(part is inner for m in found for inner in _inside(m)):
            found.append(part)
    return found[:MODULES]


def _received(process: Any) -> tuple[Any, ...]:
    """Arguments of a process, attributes of a subclass, and the object whose method it runs."""
    known = attributes(process)
    target = known.get("_target")
    arguments: list[Any] = [known.get("_args", ()), known.get("_kwargs", {})]
    if type(target) is functools.partial:
        arguments += [target.args, target.keywords]
        target = target.func
    own = {name: part for name, part in known.items() if name not in _OF_ANY_PROCESS}
    return (*arguments, own, target.__self__ if type(target) is MethodType else None)


def _inside(model: Any) -> list[Any]:
    return [part for _, part in walk(model) if is_module(part)]


def _parameters(model: Any) -> list[tuple[str, Any]]:
    """Trainable parameters of a model, with their names.

    Empty while a mode of the program intercepts calls on tensors.
    """
    if sys.modules["torch"]._C._len_torch_function_stack():
        return []
    kind = sys.modules["torch.nn"].Parameter
    rows = walk(model)
    return [
        (path.lstrip("."), part)
        for path, part in rows
        if is_tensor(part) and type(part) is kind and part.requires_grad
    ]


def _can_send_back(process: Any) -> bool:
    """Whether a child could send something back by its arguments, or by a global variable."""
    main = vars(sys.modules["__main__"])
    for _, part in itertools.chain(walk(process), walk(_received(process)), walk(main, 1)):
        package, _, module = module_of_class(type(part)).partition(".")
        if package == "multiprocessing" and module in _WAYS_BACK:
            return True
        if type(part) is sys.modules["torch"].Tensor and part.is_shared():
            return True
    return False


def _is_synchronised() -> bool:
    """Whether something other than shared memory synchronises the parameters."""
    distributed = sys.modules.get("torch.distributed")
    if distributed is not None and distributed.is_available() and distributed.is_initialized():
        return True
    return any(name in sys.modules for name in _TOGETHER)

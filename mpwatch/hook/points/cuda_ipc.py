"""CUDA memory shared with other processes: each send is counted by `checks.cuda_lent`."""

from __future__ import annotations

from .. import checks
from ..lifecycle.patcher import attribute
from ..safe import foreign_exceptions

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from types import ModuleType
    from typing import Any

    from ..context import Context
    from ..lifecycle.patcher import Undo


def _share_cuda(original: Callable[..., Any], session: Context) -> Callable[..., Any]:
    lent: Any = None

    def _share_cuda_(self: Any, *args: Any, **kwargs: Any) -> Any:
        nonlocal lent
        try:
            result = original(self, *args, **kwargs)
        except BaseException as error:
            foreign_exceptions.unframe(error)
            raise
        try:
            if lent is None:
                lent = checks.load("cuda_lent").Lent(session.system)
                session.gauges["cuda_lent"] = lent.show
            lent.send(result)
        except Exception as error:
            if not foreign_exceptions.is_ours(error):
                raise
            session.patcher.missing["cuda_lent"] = f"{type(error).__name__}: {error}"[:200]
        return result

    return _share_cuda_


def install(module: ModuleType, session: Context) -> Undo:
    """Wrap the method that sends CUDA memory; the gauge is added with the first send."""
    undo = attribute("TypedStorage._share_cuda_", _share_cuda)(module, session)

    def undo_both() -> None:
        session.drop_gauges("cuda_lent")
        undo()

    return undo_both

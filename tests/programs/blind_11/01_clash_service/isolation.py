"""Run one tool call in its own interpreter, so a crashing geometry kernel never takes the service down."""
import logging
import multiprocessing as mp
import traceback

log = logging.getLogger("ifcservice.isolation")


class ToolError(RuntimeError):
    pass


def _entry(target, kwargs, results):
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(processName)s %(name)s %(message)s")
    try:
        value = target(**kwargs)
    except Exception:
        results.put(("error", traceback.format_exc()))
    else:
        results.put(("ok", value))
        logging.getLogger("ifcservice.tool").info("%s finished, result handed over", target.__name__)


def run_isolated(target, kwargs, name):
    ctx = mp.get_context("spawn")
    results = ctx.Queue()
    proc = ctx.Process(target=_entry, args=(target, kwargs, results), name=name)
    proc.start()
    proc.join()
    if proc.exitcode != 0:
        raise ToolError(f"{name} ended with exit code {proc.exitcode}")
    status, value = results.get()
    if status == "error":
        raise ToolError(value)
    return value

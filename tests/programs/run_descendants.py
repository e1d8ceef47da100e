"""Starts Python programs in the ways that launchers do: `run_descendants.py WAY [INTERPRETER]`.

`look` prints what a program can see of mpwatch; each other way starts `look`.
"""

import os
import subprocess
import sys
import typing

PYTHON = sys.argv[2] if len(sys.argv) > 2 else sys.executable
LOOK = [PYTHON, "-B", os.path.abspath(__file__), "look"]


def look():
    hook = sys.modules.get("_mpwatch_hook")
    print("hooked" if hook is not None and hook.current() is not None else "unhooked")


def any_of(value) -> typing.Any:
    """The value, unknown to type checkers: these calls are meant to fail."""
    return value


def same():
    """Print all that a program can see of its start, and the exits of its children."""
    print(sorted(os.environ.items()))
    print(sys.path, sys.argv, sys.flags, sorted(sys.warnoptions))
    site = sys.modules.get("sitecustomize")
    print(getattr(site, "__file__", None), getattr(site, "__name__", None))
    print(getattr(sys, "runs_of_the_projects_own", None), os.execve in os.supports_fd)
    sys.stdout.flush()
    fails = [PYTHON, "-c", "raise SystemExit(3)"]
    for arguments in (["/no/such/program"], [PYTHON, b"\0"], fails):
        for options in ({}, {"env": dict(os.environ)}, {"env": {1: "2"}}, {"env": {"a=": "b"}}):
            try:
                print(subprocess.call(any_of(arguments), stdin=subprocess.DEVNULL, **options))
            except (OSError, TypeError, ValueError) as error:
                lines = []
                step = error.__traceback__
                while step is not None:
                    code = step.tb_frame.f_code
                    # On 3.10 the line of a wrapper may stay, see `hook/safe/foreign_exceptions.py`.
                    if sys.version_info >= (3, 11) or "mpwatch/hook" not in code.co_filename:
                        lines.append((code.co_name, step.tb_lineno, code.co_filename))
                    step = step.tb_next
                print(type(error), error, lines)
            sys.stdout.flush()
    for change in (["PYTHONPATH"], ["PYTHONPATH", 1], [b"PYTHONPATH", b"/a"], ["a=b", "c"]):
        try:
            print(any_of(os.putenv)(*change))
        except (OSError, TypeError, ValueError) as error:
            print(type(error), error)


def inherited():
    subprocess.call(LOOK)


def copied():
    subprocess.call(LOOK, env=dict(os.environ, RANK="0"))


def given():
    subprocess.call(LOOK, env=os.environ)


def with_preexec():
    subprocess.call(LOOK, env=os.environ.copy(), preexec_fn=os.getpid)


def by_shell():
    subprocess.call(" ".join(LOOK), shell=True)


def by_system():
    os.system(" ".join(LOOK))


def by_posix_spawn():
    os.waitpid(os.posix_spawn(PYTHON, LOOK, dict(os.environ)), 0)


def by_spawnve():
    os.spawnve(os.P_WAIT, PYTHON, LOOK, dict(os.environ))


def by_exec():
    os.execv(PYTHON, LOOK)


def by_exec_with_environment():
    os.execve(PYTHON, LOOK, dict(os.environ))


def by_fork_exec():
    """As loky does."""
    import _posixsubprocess

    pairs = [os.fsencode(name + "=" + value) for name, value in os.environ.items()]
    reader, writer = os.pipe()
    files = (-1, -1, -1, -1, -1, -1, reader, writer)
    group = (-1,) if sys.version_info >= (3, 11) else ()
    vfork = (False,) if sys.version_info >= (3, 11) else ()
    rest = (False, False, *group, None, None, None, -1, None, *vfork)
    path = [os.fsencode(PYTHON)]
    pid = any_of(_posixsubprocess.fork_exec)(
        LOOK, path, True, (writer,), None, pairs, *files, *rest
    )
    os.waitpid(pid, 0)


def after_setting():
    os.environ["PYTHONPATH"] = "/somewhere"
    subprocess.call(LOOK)


def after_deleting():
    os.environ["PYTHONPATH"] = "/somewhere"
    del os.environ["PYTHONPATH"]
    subprocess.call(LOOK)


def after_fork():
    if os.fork() == 0:
        subprocess.call(LOOK, env=dict(os.environ))
        os._exit(0)
    os.wait()


def by_grandchild():
    subprocess.call([*LOOK[:-1], "copied", PYTHON], env=dict(os.environ))


def by_spawned_child():
    import multiprocessing

    child = multiprocessing.get_context("spawn").Process(target=copied)
    child.start()
    child.join()


def without_environment():
    subprocess.call(LOOK, env={})


def with_few_variables():
    subprocess.call(LOOK, env={"PATH": os.environ["PATH"]})


def by_env_i():
    subprocess.call(["env", "-i", *LOOK])


def isolated():
    subprocess.call([LOOK[0], "-I", *LOOK[1:]])


def ignoring_the_environment():
    subprocess.call([LOOK[0], "-E", *LOOK[1:]])


def without_site():
    subprocess.call([LOOK[0], "-S", *LOOK[1:]])


def disabled():
    subprocess.call(LOOK, env=dict(os.environ, MPWATCH_DISABLE="1"))


def detached():
    sys.modules["_mpwatch_hook"].uninstrument()
    subprocess.call(LOOK)
    subprocess.call(LOOK, env=dict(os.environ))


if __name__ == "__main__":
    globals()[sys.argv[1]]()

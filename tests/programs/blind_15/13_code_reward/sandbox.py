import contextlib
import io
import os
import resource
import signal


def execute(conn, code, memory):
    """Entry point of the child: run code, send (status, stdout), leave without cleanup."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    used = int(open("/proc/self/statm").read().split()[0]) * os.sysconf("SC_PAGE_SIZE")
    resource.setrlimit(resource.RLIMIT_AS, (used + memory // 4, used + memory // 4))
    out = io.StringIO()
    try:
        with contextlib.redirect_stdout(out):
            exec(compile(code, "<program>", "exec"), {"__name__": "__main__"})
        result = ("ok", out.getvalue().strip())
    except MemoryError:
        result = ("memory", None)
    except BaseException as e:
        result = (type(e).__name__, None)
    conn.send(result)
    conn.close()
    os._exit(0)

"""`attach_file_limit.py BYTES`: may write no larger file, and ends if it tries to (SIGXFSZ).

With `hooked` as a second argument it loads the hook itself. It prints `ready`, then one line for
each that it reads; with `notes` as the line, after so many notes of the hook that they fill a file.
"""

import resource
import signal
import sys
import time

signal.signal(signal.SIGXFSZ, signal.SIG_DFL)  # Python ignores it
limit = int(sys.argv[1])
resource.setrlimit(resource.RLIMIT_FSIZE, (limit, limit))
if sys.argv[2:] == ["hooked"]:
    import mpwatch

    assert mpwatch.instrument()
print("ready", flush=True)
for line in sys.stdin:
    if line.strip() == "notes":
        from mpwatch.hook import current

        session = current()
        assert session is not None
        for _ in range(1000):
            session.note("hook-problem", what="test", text="x" * 200)
    time.sleep(0.2)
    print("goes on", flush=True)

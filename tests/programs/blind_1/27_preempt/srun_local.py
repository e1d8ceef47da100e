"""Stand-in for `srun --signal=USR2@...` on a workstation."""
import argparse
import os
import signal
import subprocess
import sys
import tempfile
import time


def main():
    ap = argparse.ArgumentParser()
    ap.add_argument("--signal-after", type=float, default=8, help="seconds after the job reported that it runs")
    ap.add_argument("--time-limit", type=float, default=150)
    ap.add_argument("cmd", nargs=argparse.REMAINDER)
    args = ap.parse_args()
    running = os.path.join(tempfile.mkdtemp(prefix="srun_"), "running")
    step = subprocess.Popen([sys.executable] + args.cmd, start_new_session=True,
                            env=dict(os.environ, SRUN_STATE_FILE=running))
    t0, sent = time.time(), False
    try:
        while step.poll() is None and time.time() - t0 < args.time_limit:
            time.sleep(0.5)
            if not sent and os.path.exists(running) and time.time() - os.path.getmtime(running) > args.signal_after:
                print("srun_local: sending SIGUSR2 to the job step", flush=True)
                os.killpg(step.pid, signal.SIGUSR2)
                sent = True
    finally:
        if step.poll() is None:
            os.killpg(step.pid, signal.SIGTERM)
    sys.exit(step.wait())


if __name__ == "__main__":
    signal.signal(signal.SIGTERM, lambda *a: sys.exit(143))
    main()

import argparse
import logging
import subprocess
import sys
import time

log = logging.getLogger("checks")


class Check:
    def __init__(self, name, argv):
        self.name = name
        self.argv = argv

    def run(self, logfile):
        started = time.monotonic()
        proc = subprocess.Popen(self.argv, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        # warnings first, they belong at the head of the report
        warnings = []
        while True:
            line = proc.stderr.readline()
            if not line:
                break
            warnings.append(line.rstrip())
            logfile.write(f"[{self.name}] {line}")
        report = proc.stdout.read()
        rc = proc.wait()
        log.info("%s: rc=%d, %d warnings, %d bytes, %.1fs", self.name, rc, len(warnings), len(report),
                 time.monotonic() - started)
        return rc, warnings, report


def main():
    p = argparse.ArgumentParser()
    p.add_argument("--packages", nargs="+", default=["http", "ssl", "mqtt", "dns", "smb"])
    p.add_argument("--log", default="/tmp/pkg_checks.log")
    args = p.parse_args()
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(message)s")
    failed = []
    with open(args.log, "w") as logfile:
        for i, name in enumerate(args.packages):
            check = Check(name, [sys.executable, "run_tests.py", name, "--cases", str(120 * (i + 1) ** 2)])
            rc, _, _ = check.run(logfile)
            if rc:
                failed.append(name)
    log.info("done, failed: %s", failed or "none")


if __name__ == "__main__":
    main()

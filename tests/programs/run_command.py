"""Runs a command: `run_command.py COMMAND ARGS...`; its exit code is the command's."""

import subprocess
import sys

if __name__ == "__main__":
    sys.exit(subprocess.call(sys.argv[1:]))

"""What can be typed: the parser of all commands, with help that says what each is for."""

from __future__ import annotations

import argparse
from collections.abc import Sequence

from mpwatch import __version__

_DESCRIPTION = """\
See why a PyTorch multi-process job hangs, leaks or dies.

Without a command: pick one of the torch jobs that run, then watch it."""

_EPILOG = """\
exit codes: 0 fine, 1 findings at or above --fail-on, 2 usage, 3 no such process,
            4 not permitted, 5 not a Python process, 130 interrupted"""

_SEVERITIES = ("never", "info", "warning", "critical")


def parse(argv: Sequence[str]) -> argparse.Namespace:
    """Parse a command line; usage errors and `--help` leave through `SystemExit`."""
    return build_parser().parse_args(argv)


def build_parser() -> argparse.ArgumentParser:
    """The parser with every command that exists."""
    parser = argparse.ArgumentParser(
        prog="mpwatch",
        description=_DESCRIPTION,
        epilog=_EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--version", action="version", version=f"mpwatch {__version__}")
    parser.set_defaults(command=("mpwatch.cli.dashboards", "pick"), refresh=1.0, readonly=False)
    commands = parser.add_subparsers(metavar="COMMAND", title="commands")
    _add_watching(commands)
    _add_looking(commands)
    _add_recording(commands)
    _add_changing(commands)
    _add_clean(commands)
    return parser


def _add_watching(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    attach = commands.add_parser("attach", help="watch a running job in the dashboard")
    attach.add_argument("pid", type=_pid, metavar="PID")
    attach.add_argument("--no-hook", action="store_true", help="only look from outside")
    attach.add_argument("--record", metavar="FILE", help="also write a recording")
    attach.add_argument("--refresh", type=_hz, default=1.0, metavar="HZ", help="samples a second")
    attach.add_argument("--readonly", action="store_true", help="nothing can be changed from it")
    attach.add_argument(
        "--inline", action="store_true", help="a few lines that stay in the scrollback"
    )
    attach.set_defaults(command=("mpwatch.cli.dashboards", "attach"))

    serve = commands.add_parser("serve", help="the dashboard in a browser on this machine")
    serve.add_argument("pid", type=_pid, metavar="PID")
    serve.add_argument("--no-hook", action="store_true", help="only look from outside")
    serve.add_argument("--port", type=_port, default=8000, metavar="PORT", help="default 8000")
    serve.set_defaults(command=("mpwatch.cli.dashboards", "serve"))

    run = commands.add_parser("run", help="start a program with the hook in, and watch it")
    run.add_argument("-m", dest="is_module", action="store_true", help="TARGET is a module")
    run.add_argument("--headless", action="store_true", help="no dashboard; it runs as always")
    run.add_argument("--record", metavar="FILE", help="write a recording")
    run.add_argument("--refresh", type=_hz, default=1.0, metavar="HZ", help="samples a second")
    run.add_argument("target", metavar="TARGET")
    run.add_argument("arguments", nargs=argparse.REMAINDER, metavar="ARGS")
    run.set_defaults(command=("mpwatch.cli.runs", "run"))

    demo = commands.add_parser("demo", help="a real torch program that shows one failure, watched")
    demo.add_argument("scenario", nargs="?", default="healthy", metavar="SCENARIO")
    demo.add_argument("--list", action="store_true", dest="list_scenarios", help="what there is")
    demo.add_argument("--mended", action="store_true", help="the same program, done right")
    demo.add_argument("--refresh", type=_hz, default=1.0, metavar="HZ", help="samples a second")
    demo.set_defaults(command=("mpwatch.cli.runs", "demo"))


def _add_looking(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    ps = commands.add_parser("ps", help="torch and hooked processes, with roles and hook state")
    _add_json(ps)
    ps.set_defaults(command=("mpwatch.cli.looks", "ps"))

    dump = commands.add_parser("dump", help="the whole process tree, once")
    dump.add_argument("pid", type=_pid, metavar="PID")
    dump.add_argument("--no-stacks", action="store_true", help="do not take stacks")
    dump.add_argument("--native", action="store_true", help="native frames too (slower)")
    dump.add_argument("--locals", action="store_true", help="local variables too")
    _add_json(dump)
    _add_hook(dump)
    dump.set_defaults(command=("mpwatch.cli.looks", "dump"))

    diagnose = commands.add_parser("diagnose", help="what is wrong, where, why and what to do")
    diagnose.add_argument("subject", metavar="PID|FILE")
    diagnose.add_argument(
        "--for",
        dest="seconds",
        type=_seconds,
        default=5.0,
        metavar="SECONDS",
        help="watch this long first (default 5)",
    )
    diagnose.add_argument(
        "--fail-on", choices=_SEVERITIES, default="never", help="exit 1 from this severity on"
    )
    _add_json(diagnose)
    _add_hook(diagnose)
    diagnose.set_defaults(command=("mpwatch.cli.looks", "diagnose"))

    export = commands.add_parser("export", help="metrics of a job for Prometheus")
    export.add_argument("pid", type=_pid, metavar="PID")
    export.add_argument("--prometheus", required=True, metavar="HOST:PORT", help="a local address")
    export.add_argument("--refresh", type=_hz, default=1.0, metavar="HZ", help="samples a second")
    _add_hook(export)
    export.set_defaults(command=("mpwatch.cli.metrics", "export"))

    doctor = commands.add_parser("doctor", help="the host's limits and rights, before trouble")
    doctor.add_argument("pid", nargs="?", type=_pid, metavar="PID")
    _add_json(doctor)
    doctor.set_defaults(command=("mpwatch.cli.looks", "doctor"))


def _add_recording(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    record = commands.add_parser("record", help="write everything observed to a file")
    record.add_argument("pid", type=_pid, metavar="PID")
    record.add_argument("-o", dest="output", required=True, metavar="FILE")
    record.add_argument("--for", dest="seconds", type=_seconds, metavar="SECONDS", help="then stop")
    record.add_argument("--refresh", type=_hz, default=1.0, metavar="HZ", help="samples a second")
    _add_hook(record)
    record.set_defaults(command=("mpwatch.cli.files", "record"))

    report = commands.add_parser("report", help="a recording as one page of HTML")
    report.add_argument("file", metavar="FILE")
    report.add_argument("-o", dest="output", required=True, metavar="OUT.html")
    report.set_defaults(command=("mpwatch.cli.files", "report"))

    trace = commands.add_parser("trace", help="a recording as a trace for Perfetto")
    trace.add_argument("file", metavar="FILE")
    trace.add_argument("-o", dest="output", required=True, metavar="OUT.json")
    trace.set_defaults(command=("mpwatch.cli.files", "trace"))

    autopsy = commands.add_parser("autopsy", help="what dead processes did last")
    autopsy.add_argument("subject", metavar="PID|DIR")
    autopsy.set_defaults(command=("mpwatch.cli.files", "autopsy"))

    replay = commands.add_parser("replay", help="a recording in the dashboard")
    replay.add_argument("file", metavar="FILE")
    replay.set_defaults(command=("mpwatch.cli.dashboards", "replay"))


def _add_changing(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    detach = commands.add_parser("detach", help="take the hook out of the whole tree")
    detach.add_argument("pid", type=_pid, metavar="PID")
    detach.set_defaults(command=("mpwatch.cli.changes", "detach"))


def _add_clean(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    clean = commands.add_parser(
        "clean", help="orphaned torch segments and sockets of dead processes, nothing else"
    )
    clean.add_argument("--yes", action="store_true", help="remove them; without it they are listed")
    clean.set_defaults(command=("mpwatch.cli.changes", "clean"))


def _add_json(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--json", action="store_true", help="JSON, and nothing else, on stdout")


def _add_hook(parser: argparse.ArgumentParser) -> None:
    choice = parser.add_mutually_exclusive_group()
    choice.add_argument("--hook", action="store_true", help="bring the hook in first")
    choice.add_argument("--no-hook", action="store_true", help="ignore a hook that is there")


def _pid(text: str) -> int:
    value = int(text) if text.isascii() and text.isdigit() else 0
    if not 0 < value < 2**31:
        raise argparse.ArgumentTypeError(f"{text!r} is no process id; `mpwatch ps` lists jobs")
    return value


def _port(text: str) -> int:
    value = int(text) if text.isascii() and text.isdigit() else 0
    if not 1024 <= value < 65536:
        raise argparse.ArgumentTypeError(f"{text!r} is not a port from 1024 to 65535")
    return value


def _hz(text: str) -> float:
    return _between(text, 0.05, 20.0, "a rate per second")


def _seconds(text: str) -> float:
    return _between(text, 0.1, 86_400.0, "a number of seconds")


def _between(text: str, low: float, high: float, what: str) -> float:
    try:
        value = float(text)
    except ValueError:
        value = float("nan")
    if not low <= value <= high:
        raise argparse.ArgumentTypeError(f"{text!r} is not {what} from {low:g} to {high:g}")
    return value

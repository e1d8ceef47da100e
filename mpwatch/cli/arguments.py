"""The argument parser of all commands, with their help texts."""

from __future__ import annotations

import argparse
from collections.abc import Callable, Mapping, Sequence
from typing import TypeAlias

from mpwatch import __version__

_DESCRIPTION = """\
See why a PyTorch multi-process job hangs, leaks or dies.

Without a command: choose a running torch job and open the dashboard on it."""

_ATTACH = """\
Open the dashboard on a running job. What can be seen from outside is shown at once; the
dashboard then asks whether to inject the hook. Hooks that it injected are detached when it is
closed, unless --keep is given.

hook = "ask", "always" or "never" in the section [attach] of ~/.config/mpwatch/config.toml answers
the question for every session. Nothing is injected with --readonly or --inline, or where the
dashboard is not on a terminal, unless --hook is given, and never into processes that have
MPWATCH_DISABLE=1 in their environment."""

_JOB = """\
Open the dashboard on a job that runs on several machines: nodes, ranks, processes.
An agent, `mpwatch node --stdio`, runs on each node while the dashboard is open. It opens
no port and injects nothing, and ends with the dashboard.

SPEC names the job:
  ssh:HOST,HOST            hosts, by your own ssh and without questions
  ssh:@HOSTFILE            the first word of each line
  ray:auto                 one actor on each node of the running Ray cluster;
                           ray:HOST:PORT of another one
  slurm:JOBID              one srun step in the job's allocation for each node;
                           inside an allocation SPEC may be left out
  k8s:[NAMESPACE/]POD,POD[:CONTAINER]  kubectl exec; LABEL=VALUE in place of pods
  local:N                  N agents that share the jobs of this machine"""

_NODE = """\
Send the state of the jobs of this machine to standard output, in frames, and answer requests
from standard input; ends with it. Started by `--job SPEC`."""

_EPILOG = """\
exit codes: 0 fine, 1 findings at or above --fail-on, 2 usage, 3 no such process,
            4 not permitted, 5 not a Python process, 130 interrupted"""

_Commands: TypeAlias = "argparse._SubParsersAction[argparse.ArgumentParser]"
_Group: TypeAlias = "Callable[[_Commands], None]"
_SEVERITIES = ("never", "info", "warning", "critical")


def parse(argv: Sequence[str]) -> argparse.Namespace:
    """Parse a command line; usage errors and `--help` raise `SystemExit`.

    Where the first word is a command, only the parsers of its group are made: all of them take
    17 ms of cpu, those of the group of `dump` 11.
    """
    return build_parser(_GROUPS.get(argv[0]) if argv else None).parse_args(argv)


def build_parser(group: _Group | None = None) -> argparse.ArgumentParser:
    """The parser with all commands, or with those of one group."""
    parser = argparse.ArgumentParser(
        prog="mpwatch",
        description=_DESCRIPTION,
        epilog=_EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--version", action="version", version=f"mpwatch {__version__}")
    parser.set_defaults(command=("mpwatch.cli.dashboards", "pick"), refresh=1.0, readonly=False)
    commands = parser.add_subparsers(metavar="COMMAND", title="commands")
    for add in dict.fromkeys(_GROUPS.values()) if group is None else (group,):
        add(commands)
    return parser


def _command(
    commands: _Commands, name: str, *, help: str, description: str = ""
) -> argparse.ArgumentParser:
    """The parser of one command; without a description its line in the list is repeated."""
    return commands.add_parser(
        name,
        help=help,
        description=description or f"{help[0].upper()}{help[1:]}.",
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )


def _add_dashboards(commands: _Commands) -> None:
    attach = _command(
        commands,
        "attach",
        help="open the dashboard on a running job",
        description=_ATTACH,
    )
    attach.add_argument("pid", type=_pid, metavar="PID")
    choice = attach.add_mutually_exclusive_group()
    choice.add_argument("--hook", action="store_true", help="inject the hook without asking")
    choice.add_argument(
        "--no-hook",
        action="store_true",
        help="do not ask whether to inject the hook (the key i injects it later); hooks that are "
        "there are used",
    )
    _add_keep(attach)
    attach.add_argument(
        "--only",
        type=_pid,
        action="append",
        default=[],
        metavar="PID",
        help="inject into this process only; may be given several times",
    )
    attach.add_argument(
        "--dry-run", action="store_true", help="print what an injection would do, and exit"
    )
    _add_json(attach, "with --dry-run: print JSON only")
    attach.add_argument("--record", metavar="FILE", help="also write a recording")
    _add_refresh(attach)
    attach.add_argument(
        "--readonly", action="store_true", help="nothing can be changed from the dashboard"
    )
    attach.add_argument(
        "--inline", action="store_true", help="print a few lines that stay in the scrollback"
    )
    attach.set_defaults(command=("mpwatch.cli.dashboards", "attach"))

    serve = _command(commands, "serve", help="serve the dashboard to a browser on this machine")
    serve.add_argument("pid", type=_pid, metavar="PID")
    serve.add_argument(
        "--no-hook",
        action="store_true",
        help="as for attach; serve never injects, and uses hooks that are there",
    )
    serve.add_argument("--port", type=_port, default=8000, metavar="PORT", help="default 8000")
    serve.set_defaults(command=("mpwatch.cli.dashboards", "serve"))


def _add_runs(commands: _Commands) -> None:
    run = _command(
        commands, "run", help="run a program with the hook loaded and open the dashboard"
    )
    run.add_argument("-m", dest="is_module", action="store_true", help="TARGET is a module")
    run.add_argument("--headless", action="store_true", help="run without the dashboard")
    run.add_argument("--record", metavar="FILE", help="write a recording")
    _add_refresh(run)
    run.add_argument("target", metavar="TARGET", help="a script, or a command from PATH")
    run.add_argument("arguments", nargs=argparse.REMAINDER, metavar="ARGS")
    run.set_defaults(command=("mpwatch.cli.run", "run"))

    demo = _command(commands, "demo", help="run a torch program that shows one failure")
    demo.add_argument("scenario", nargs="?", default="healthy", metavar="SCENARIO")
    demo.add_argument(
        "--list", action="store_true", dest="list_scenarios", help="list all scenarios"
    )
    demo.add_argument("--mended", action="store_true", help="the same program without the mistake")
    _add_refresh(demo)
    demo.set_defaults(command=("mpwatch.cli.run", "demo"))


def _add_inspecting(commands: _Commands) -> None:
    ps = _command(commands, "ps", help="list torch processes and processes with the hook")
    _add_json(ps)
    ps.set_defaults(command=("mpwatch.cli.inspect", "ps"))

    dump = _command(commands, "dump", help="print the whole process tree once")
    dump.add_argument("pid", type=_pid, nargs="?", metavar="PID")
    _add_job(dump)
    dump.add_argument("--no-stacks", action="store_true", help="without stacks")
    dump.add_argument("--native", action="store_true", help="with native frames (slower)")
    dump.add_argument("--locals", action="store_true", help="with local variables")
    _add_json(dump)
    _add_hook(dump)
    dump.set_defaults(command=("mpwatch.cli.inspect", "dump"))

    diagnose = _command(commands, "diagnose", help="print findings: evidence, cause and fix")
    diagnose.add_argument(
        "subjects",
        nargs="*",
        metavar="PID|FILE",
        help="a process, a recording, or the files (or their folder) that torch's flight recorder "
        "has left, one of each rank",
    )
    _add_job(diagnose)
    diagnose.add_argument(
        "--for",
        dest="seconds",
        type=_seconds,
        metavar="SECONDS",
        help="observe for this long first (default: until a critical finding is known, 5 to 35)",
    )
    diagnose.add_argument(
        "--fail-on",
        choices=_SEVERITIES,
        default="never",
        help="exit with 1 for a finding of at least this severity",
    )
    _add_json(diagnose)
    _add_hook(diagnose)
    diagnose.set_defaults(command=("mpwatch.cli.inspect", "diagnose"))

    export = _command(commands, "export", help="serve metrics of a job to Prometheus")
    export.add_argument("pid", type=_pid, nargs="?", metavar="PID")
    _add_job(export)
    export.add_argument("--prometheus", required=True, metavar="HOST:PORT", help="a local address")
    _add_refresh(export)
    _add_hook(export)
    export.set_defaults(command=("mpwatch.cli.recordings", "export"))

    doctor = _command(commands, "doctor", help="check system limits and permissions")
    doctor.add_argument(
        "pid",
        nargs="?",
        type=_pid,
        metavar="PID",
        help="as this process sees them; also the hook in it",
    )
    _add_json(doctor)
    doctor.set_defaults(command=("mpwatch.cli.inspect", "doctor"))


def _add_recording(commands: _Commands) -> None:
    record = _command(commands, "record", help="record everything that is observed to a file")
    record.add_argument("pid", type=_pid, nargs="?", metavar="PID")
    _add_job(record)
    record.add_argument("-o", dest="output", required=True, metavar="FILE")
    record.add_argument(
        "--for", dest="seconds", type=_seconds, metavar="SECONDS", help="stop after this time"
    )
    _add_refresh(record)
    _add_hook(record)
    record.set_defaults(command=("mpwatch.cli.recordings", "record"))

    report = _command(
        commands,
        "report",
        help="write a recording, or a job on several machines, as one page of HTML",
    )
    report.add_argument("file", nargs="?", metavar="FILE", help="a recording")
    _add_job(report)
    report.add_argument(
        "--for",
        dest="seconds",
        type=_seconds,
        metavar="SECONDS",
        help="with --job: observe for this long first (default: as diagnose)",
    )
    report.add_argument("-o", dest="output", required=True, metavar="OUT.html")
    report.set_defaults(command=("mpwatch.cli.recordings", "report"), hook=False)

    trace = _command(commands, "trace", help="write a recording as a trace for Perfetto")
    trace.add_argument("file", metavar="FILE")
    trace.add_argument("-o", dest="output", required=True, metavar="OUT.json")
    trace.set_defaults(command=("mpwatch.cli.recordings", "trace"))

    autopsy = _command(commands, "autopsy", help="print the last events of dead processes")
    autopsy.add_argument("subject", metavar="PID|DIR")
    autopsy.set_defaults(command=("mpwatch.cli.recordings", "autopsy"))

    replay = _command(commands, "replay", help="open a recording in the dashboard")
    replay.add_argument("file", metavar="FILE")
    replay.set_defaults(command=("mpwatch.cli.dashboards", "replay"))


def _add_detach(commands: _Commands) -> None:
    detach = _command(commands, "detach", help="detach the hook from all processes of a job")
    detach.add_argument("pid", type=_pid, metavar="PID")
    detach.set_defaults(command=("mpwatch.cli.maintain", "detach"))


def _add_clean(commands: _Commands) -> None:
    clean = _command(
        commands,
        "clean",
        help="list or remove torch segments and files of hooks that dead processes left",
    )
    clean.add_argument(
        "--yes", action="store_true", help="remove them; without this they are only listed"
    )
    clean.set_defaults(command=("mpwatch.cli.maintain", "clean"))


def _add_nodes(commands: _Commands) -> None:
    job = _command(
        commands,
        "job",
        help="open the dashboard on a job on several machines",
        description=_JOB,
    )
    job.add_argument("job", metavar="SPEC", nargs="?", default="")
    _add_agent(job)
    job.set_defaults(command=("mpwatch.cli.nodes", "job"))

    node = _command(
        commands,
        "node",
        help="the agent on a node, which `--job` starts",
        description=_NODE,
    )
    node.add_argument("--stdio", action="store_true", required=True, help="the only way to connect")
    node.add_argument(
        "--job-pids", type=_pids, default=(), metavar="PID,PID", help="the roots of the job here"
    )
    node.add_argument(
        "--raylet", type=_pid, metavar="PID", help="the processes of this Ray node and its drivers"
    )
    _add_agent(node)
    node.add_argument(
        "--relay",
        default="",
        metavar="SPEC",
        help="relay the connections to these nodes, for a job of very many",
    )
    node.add_argument(
        "--part",
        type=_part,
        default=(0, 1),
        metavar="I/N",
        help="only part I (from 0) of N parts of the jobs here",
    )
    node.set_defaults(command=("mpwatch.cli.nodes", "node"))


_GROUPS: Mapping[str, _Group] = {
    "attach": _add_dashboards,
    "serve": _add_dashboards,
    "run": _add_runs,
    "demo": _add_runs,
    "ps": _add_inspecting,
    "dump": _add_inspecting,
    "diagnose": _add_inspecting,
    "export": _add_inspecting,
    "doctor": _add_inspecting,
    "record": _add_recording,
    "report": _add_recording,
    "trace": _add_recording,
    "autopsy": _add_recording,
    "replay": _add_recording,
    "detach": _add_detach,
    "clean": _add_clean,
    "job": _add_nodes,
    "node": _add_nodes,
}
"""By command, what makes its parser and those of its group."""


def _add_job(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--job",
        metavar="SPEC",
        help="a job on several machines: local:N, ssh:HOST,HOST, ssh:@HOSTFILE, slurm:JOBID, "
        "k8s:[NAMESPACE/]POD,POD, ray:auto, ray:HOST:PORT",
    )
    _add_agent(parser)


def _add_agent(parser: argparse.ArgumentParser) -> None:
    _add_match(parser)
    parser.add_argument(
        "--agent",
        default="",
        metavar="COMMAND",
        help="the command of mpwatch on the nodes: 'python3 /shared/mpwatch.pyz'",
    )


def _add_match(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--match",
        type=_variable,
        action="append",
        default=[],
        metavar="NAME=VALUE",
        help="only processes with this variable in their environment, and the job around them",
    )


def _pids(text: str) -> tuple[int, ...]:
    return tuple(_pid(part) for part in text.split(","))


def _variable(text: str) -> tuple[str, str]:
    name, sign, value = text.partition("=")
    if not name or not sign or not name.isascii():
        raise argparse.ArgumentTypeError(f"{text!r} is not NAME=VALUE")
    return name, value


def _part(text: str) -> tuple[int, int]:
    index, _, count = text.partition("/")
    if not (index.isdecimal() and count.isdecimal() and int(index) < int(count)):
        raise argparse.ArgumentTypeError(f"{text!r} is not I/N with I from 0 to N - 1")
    return int(index), int(count)


def _add_json(parser: argparse.ArgumentParser, words: str = "print JSON only") -> None:
    parser.add_argument("--json", action="store_true", help=words)


def _add_refresh(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--refresh", type=_hz, default=1.0, metavar="HZ", help="samples per second")


def _add_keep(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--keep", action="store_true", help="leave injected hooks attached at the end"
    )


def _add_hook(parser: argparse.ArgumentParser) -> None:
    choice = parser.add_mutually_exclusive_group()
    choice.add_argument("--hook", action="store_true", help="inject the hook first")
    choice.add_argument(
        "--no-hook", action="store_true", help="inject no hook, and ignore hooks that are there"
    )
    _add_keep(parser)


def _pid(text: str) -> int:
    value = int(text) if text.isascii() and text.isdigit() else 0
    if not 0 < value < 2**31:
        raise argparse.ArgumentTypeError(f"{text!r} is not a process ID; `mpwatch ps` lists jobs")
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

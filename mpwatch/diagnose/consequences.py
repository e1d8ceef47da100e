"""Which failure is the consequence of which, so that effects are shown under their cause."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from mpwatch.model.findings import Finding

_LOST_WORKERS = (
    "worker-oom-killed",
    "worker-segfault",
    "shm-full-sigbus",
    "worker-exited-unexpectedly",
)
"""Exits of workers in the middle of their work, the cause that says most first."""
_STALLS = (
    "feeder-thread-drops-batch",
    "fork-with-threads-lock",
    "fork-openmp",
    "fork-unsafe-library",
    "fork-vs-pin-thread",
    "queue-lock-held-by-dead",
    "queue-join-feeder-deadlock",
    "event-set-hangs",
    "pool-hang-after-worker-death",
    "joinablequeue-join-hangs",
    "half-message",
    "collective-mismatch",
    "rank-stuck-in-collective",
    "orphaned-workers",
    "sharedcache-lock-reentry",
    "stuck-worker-io",
    "straggler-worker",
    "main-not-importable",
    "no-main-guard",
    *_LOST_WORKERS,
)
"""What explains that processes wait for each other, or for one that makes no progress."""

CAUSES_OF: Mapping[str, tuple[str, ...]] = {
    "worker-exited-unexpectedly": (
        "worker-segfault",
        "shm-full-sigbus",
        "worker-oom-killed",
        "shm-full-enospc",
        "fd-exhaustion-receiver",
        "fd-exhaustion-producer",
        "max-map-count",
        "semlock-enospc",
        "nested-daemonic",
        "spawn-unpicklable-object",
        "no-main-guard",
        "spawn-temporary-tensor-fd",
        "main-not-importable",
        "inherited-iterator-del",
        "spawn-join-false-lost-semaphores",
        "semlock-cross-context",
        "pids-limit",
    ),
    "producer-exits-before-get": (
        "inherited-iterator-del",
        "worker-oom-killed",
        "worker-segfault",
        "worker-exited-unexpectedly",
    ),
    "cuda-ipc-limbo": ("steady-growth",),
    "cuda-ipc-counter-files-and-events": ("steady-growth",),
    "raw-fork-inherits-sharer": ("fd-exhaustion-producer",),
    "orphaned-workers": (
        "worker-oom-killed",
        "worker-segfault",
        "torchrun-agent-killed-orphans",
        "main-killed",
    ),
    "shm-full-enospc": (
        "file-system-strategy-leak",
        "prefetch-memory-blowup",
        "loader-iterator-leak",
        "steady-growth",
    ),
    "semlock-enospc": ("shm-full-enospc",),
    "shm-full-sigbus": ("shm-full-enospc",),
    "fd-exhaustion-receiver": ("loader-iterator-leak",),
    "feeder-thread-drops-batch": (
        "shm-full-enospc",
        "fd-exhaustion-producer",
        "tmpdir-socket-path-too-long",
        "max-map-count",
    ),
    "worker-oom-killed": (
        "copy-on-write-growth",
        "persistent-workers-leak",
        "prefetch-memory-blowup",
        "loader-iterator-leak",
        "steady-growth",
    ),
    "queue-lock-held-by-dead": _LOST_WORKERS,
    "pool-hang-after-worker-death": (
        "main-not-importable",
        "no-main-guard",
        *_LOST_WORKERS,
    ),
    "event-set-hangs": _LOST_WORKERS,
    "rank-stuck-in-collective": (
        "collective-mismatch",
        "stuck-worker-io",
        "feeder-thread-drops-batch",
        "fork-openmp",
        "fork-with-threads-lock",
        "worker-exited-unexpectedly",
        "straggler-worker",
    ),
    "loader-starvation": (
        "cpu-affinity-collapse",
        "cpu-oversubscription",
        "straggler-worker",
        "stuck-worker-io",
        "unreused-buffers-copied",
        "bottleneck-process",
        "many-small-tensors",
        "pickling-cost",
        "disk-waits",
        "page-fault-cost",
    ),
    "bottleneck-process": ("pickling-cost",),
    "pipeline-bottleneck": (
        "cpu-oversubscription",
        "pickling-cost",
        "disk-waits",
        "page-fault-cost",
        "bottleneck-process",
    ),
    "straggler-worker": ("stuck-worker-io",),
    "pin-memory-thread-death": ("fd-exhaustion-receiver", "max-map-count"),
    "resource-tracker-leaks": ("worker-oom-killed", "worker-segfault", "main-killed"),
    "elastic-agent-wedged": ("stuck-worker-io",),
    "standing-still": _STALLS,
    "no-progress": (
        "standing-still",
        "cpu-oversubscription",
        "bottleneck-process",
        "loader-starvation",
        *_STALLS,
    ),
    "half-message": _LOST_WORKERS,
    "joinablequeue-join-hangs": _LOST_WORKERS,
    "sigchld-raises-anywhere": _LOST_WORKERS,
    "pids-limit": ("loader-iterator-leak", "zombie-processes", "steady-growth"),
    "store-port-in-use": ("torchrun-agent-killed-orphans", "orphaned-workers"),
}
"""Effect to possible causes, the likeliest first."""

GROWTH = "steady-growth"
GROWTH_LEADS_TO: Mapping[str, frozenset[str]] = {
    "worker-oom-killed": frozenset(("memory", "queue")),
    "cuda-ipc-limbo": frozenset(("sent GPU memory",)),
    "cuda-ipc-counter-files-and-events": frozenset(("sent GPU memory",)),
    "shm-full-enospc": frozenset(("shared-memory files", "shared memory", "files in memory")),
    "pids-limit": frozenset(("threads", "child processes")),
}
"""The resources whose steady growth can lead to a failure, by its rule."""
GROWTH_NAMED_BY: Mapping[str, tuple[str, ...]] = {
    "memory": ("persistent-workers-leak", "copy-on-write-growth", "loader-iterator-leak"),
    "shared memory": (
        "prefetch-memory-blowup",
        "fd-exhaustion-receiver",
        "fd-exhaustion-producer",
        "unreused-buffers-copied",
        "file-system-strategy-leak",
    ),
    "queue": ("bottleneck-process",),
    "child processes": ("loader-iterator-leak", "zombie-processes"),
    "threads": ("loader-iterator-leak",),
    "descriptors": (
        "fd-exhaustion-receiver",
        "fd-exhaustion-producer",
        "loader-iterator-leak",
    ),
    "mappings": ("max-map-count", "fd-exhaustion-receiver"),
}
"""The rules that name the reason for a steady growth of a resource."""
OF_OTHER_PROCESSES = frozenset(
    (
        "persistent-workers-leak",
        "copy-on-write-growth",
        "prefetch-memory-blowup",
        "unreused-buffers-copied",
    )
)
"""Rules whose findings are about a set of workers and name the process that started them."""

SLOWER = "rounds"
"""The subject of findings about a process that slows down (`bottleneck-process`)."""

HOT_SPOT = "hot-spot"
"""The rule about where the time of a job goes that nothing is known to be wrong with: shown only
without any other finding."""

OUTPUT = frozenset(("files", "temporary files"))
"""The subjects of `GROWTH` about files that a program makes and does not remove, which may be what
it is for, also in a folder for temporary files."""

ONLY_ALONE = frozenset(("standing-still", "no-progress", GROWTH))
"""Shown only without a finding that explains it, which would say the same more exactly."""

DEATHS = frozenset(("worker-oom-killed", "worker-segfault", "worker-exited-unexpectedly"))
"""Rules about the end of a process, which do not say what waits for it."""
CONNECTS = ("no-progress", "connects")
"""The rule and the subject of processes that try to connect to one that has ended."""


def with_causes(findings: Iterable[Finding]) -> dict[Finding, str]:
    """The cause of each finding among the other findings, as a rule id; without cycles."""
    present = list(findings)
    by_rule: dict[str, list[Finding]] = {}
    for finding in present:
        by_rule.setdefault(finding.rule, []).append(finding)
    rules = set(by_rule)
    chosen: dict[Finding, str] = {}
    for finding in present:
        if finding.effect_of is not None and finding.effect_of in rules:
            chosen[finding] = finding.effect_of
            continue
        for cause in _possible_causes(finding):
            is_present = any(_explains(each, finding) for each in by_rule.get(cause, ()))
            if is_present and not _leads_back(cause, finding.rule, rules):
                chosen[finding] = cause
                break
    for finding, cause in chosen.items():
        # A cause that is left out beside its own cause stands for that one.
        above = {chosen.get(each) for each in by_rule[cause]} if cause in ONLY_ALONE else {None}
        if len(above) == 1 and (shown := above.pop()) not in (None, finding.rule):
            chosen[finding] = shown
    return chosen


def _possible_causes(effect: Finding) -> tuple[str, ...]:
    """The rules whose findings may explain this one."""
    if effect.rule == GROWTH:
        return GROWTH_NAMED_BY.get(effect.subject, ())
    return CAUSES_OF.get(effect.rule, ())


def _explains(cause: Finding, effect: Finding) -> bool:
    """Whether a finding of a possible cause is about the same thing as its effect.

    Growths are distinguished: there may be several, of different resources and processes. So are
    processes that others wait for. And a rule may know that its finding is itself the effect of the
    other one.
    """
    if cause.effect_of == effect.rule or effect.says_why:
        return False
    if cause.rule == "bottleneck-process" and effect.rule == "pipeline-bottleneck":
        return cause.process == effect.process
    if cause.rule == GROWTH:
        return effect.rule != GROWTH and cause.subject in GROWTH_LEADS_TO.get(effect.rule, ())
    if effect.rule == GROWTH and cause.rule == "bottleneck-process":
        # What is put into a queue stays there where the one that takes it out slows down. Where
        # more than its numbers is known of the growth, that says which process it is.
        puts = (effect.process, *effect.others)
        return cause.subject == SLOWER and effect.is_doubtful and cause.process not in puts
    if effect.rule == GROWTH:
        return cause.rule in OF_OTHER_PROCESSES or cause.process in (None, effect.process)
    return True


def _leads_back(cause: str, effect: str, rules: set[str]) -> bool:
    """Whether the cause is itself, through others present, a consequence of the effect."""
    seen: set[str] = set()
    waiting = [cause]
    while waiting:
        rule = waiting.pop()
        if rule == effect:
            return True
        if rule not in seen:
            seen.add(rule)
            waiting.extend(up for up in CAUSES_OF.get(rule, ()) if up in rules)
    return False

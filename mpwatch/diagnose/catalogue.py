"""Every rule there is, by its id: the imports below are the list."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from operator import attrgetter
from types import ModuleType
from typing import NamedTuple, TypeAlias

from mpwatch.diagnose import rules
from mpwatch.diagnose.known_errors import KNOWN_ERRORS, KnownError, known_error
from mpwatch.diagnose.rules import (  # noqa: F401 - gathered into RULES, so that this is the one list
    collective_mismatch,
    compile_worker_pool,
    copy_on_write_growth,
    cpu_affinity_collapse,
    cpu_oversubscription,
    cuda_contexts_everywhere,
    cuda_ipc_counter_files_and_events,
    cuda_ipc_limbo,
    elastic_agent_wedged,
    event_set_hangs,
    fd_exhaustion_producer,
    fd_exhaustion_receiver,
    feeder_thread_drops_batch,
    file_system_strategy_leak,
    fork_openmp,
    fork_unsafe_library,
    fork_vs_pin_thread,
    fork_with_threads_lock,
    forkserver_too_many_fds,
    gil_bound_threads,
    half_message,
    iterable_duplicates,
    joinablequeue_join_hangs,
    loader_iterator_leak,
    loader_starvation,
    main_killed,
    main_not_importable,
    max_map_count,
    no_main_guard,
    numpy_rng_identical,
    orphaned_workers,
    persistent_workers_leak,
    pids_limit,
    pin_memory_thread_death,
    pool_hang_after_worker_death,
    prefetch_memory_blowup,
    producer_exits_before_get,
    python314_forkserver_default,
    queue_join_feeder_deadlock,
    queue_lock_held_by_dead,
    rank_stuck_in_collective,
    raw_fork_inherits_sharer,
    resource_tracker_leaks,
    semlock_enospc,
    shared_file_offset,
    shared_memory_tracker_unlink,
    sharedcache_growth,
    sharedcache_lock_reentry,
    shm_full_enospc,
    shm_full_sigbus,
    sigchld_raises_anywhere,
    spawn_startup_cost,
    spawn_unpicklable_object,
    standing_still,
    start_method_inheritance,
    store_port_in_use,
    straggler_worker,
    stuck_worker_io,
    tmpdir_socket_path_too_long,
    torchrun_agent_killed_orphans,
    torchrun_root_cause_misread,
    torchrun_sighup,
    unreused_buffers_copied,
    worker_exited_unexpectedly,
    worker_oom_killed,
    worker_segfault,
    zombie_processes,
)
from mpwatch.model.findings import Finding
from mpwatch.model.history import History
from mpwatch.model.snapshot import Snapshot

Check: TypeAlias = Callable[[Snapshot, History], Iterator[Finding]]


class Rule(NamedTuple):
    """One failure that can be recognised."""

    id: str
    check: Check


def _of_message(known: KnownError, snapshot: Snapshot, history: History) -> Iterator[Finding]:
    del history
    return known_error(known, snapshot)


RULES: tuple[Rule, ...] = tuple(
    sorted(
        (
            *(
                Rule(module.RULE, module.check)
                for module in vars(rules).values()
                if isinstance(module, ModuleType)
            ),
            *(Rule(known.rule, partial(_of_message, known)) for known in KNOWN_ERRORS),
        ),
        key=attrgetter("id"),
    )
)
"""All of them, by id: one a module of `rules`, and one a row of the table of known errors."""

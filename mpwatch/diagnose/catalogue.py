"""Every rule there is, by its id: the imports below are the list."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from types import ModuleType
from typing import NamedTuple, TypeAlias

from mpwatch.diagnose import rules
from mpwatch.diagnose.rules import (  # noqa: F401 - gathered into RULES, so that this is the one list
    collective_mismatch,
    compile_worker_pool,
    context_already_set,
    copy_on_write_growth,
    cpu_affinity_collapse,
    cpu_oversubscription,
    cuda_contexts_everywhere,
    cuda_in_forked_child,
    cuda_ipc_allocator_mismatch,
    cuda_ipc_counter_files_and_events,
    cuda_ipc_limbo,
    cuda_ipc_producer_exit,
    elastic_agent_wedged,
    event_set_hangs,
    fd_exhaustion_producer,
    fd_exhaustion_receiver,
    fds_to_keep_duplicate,
    feeder_thread_drops_batch,
    file_system_strategy_leak,
    fork_openmp,
    fork_unsafe_library,
    fork_vs_pin_thread,
    fork_with_threads_lock,
    forkserver_too_many_fds,
    gil_bound_threads,
    half_message,
    hogwild_not_shared,
    inherited_iterator_del,
    iterable_duplicates,
    joinablequeue_join_hangs,
    loader_iterator_leak,
    loader_starvation,
    main_killed,
    main_not_importable,
    max_map_count,
    nccl_shm_enospc,
    nested_daemonic,
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
    queue_aliasing_inplace_write,
    queue_join_feeder_deadlock,
    queue_lock_held_by_dead,
    rank_stuck_in_collective,
    raw_fork_inherits_sharer,
    resource_tracker_leaks,
    semlock_cross_context,
    semlock_enospc,
    share_memory_dangling_numpy,
    shared_file_offset,
    shared_memory_tracker_unlink,
    sharedcache_growth,
    sharedcache_lock_reentry,
    sharedcache_race,
    shm_full_enospc,
    shm_full_sigbus,
    shm_manager_failure,
    sigchld_raises_anywhere,
    spawn_join_false_lost_semaphores,
    spawn_startup_cost,
    spawn_temporary_tensor_fd,
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


RULES: tuple[Rule, ...] = tuple(
    Rule(module.RULE, module.check)
    for _, module in sorted(vars(rules).items())
    if isinstance(module, ModuleType)
)

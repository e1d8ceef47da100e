"""The raw signal of each demonstration: proof from outside, without mpwatch, that it really fails.

A line of its output where the failure prints an error, a reading from /proc where it does not.
"""

from __future__ import annotations

import glob
import os
import signal
from collections.abc import Callable

from tests import procfs
from tests.integration.demo.program import Program
from tests.procfs import FUTEX, NANOSLEEP, READ, RECV, WAIT4, WRITE, eventually

Signal = Callable[[Program], bool]


def says(*beginning: str) -> Signal:
    """It prints a line that starts with one of these texts."""
    return lambda program: program.says(beginning)


def received_tensors_are_kept(program: Program) -> bool:
    """Descriptors on segments rise in main, and each has its mapping."""
    rise = procfs.grows(lambda: procfs.torch_fds(program.pid), by=5)
    return rise and abs(procfs.torch_fds(program.pid) - procfs.torch_maps(program.pid)) <= 4


def unsent_tensors_pile_up(program: Program) -> bool:
    """The producer has many descriptors on segments and next to no mapping."""
    (producer,) = procfs.children(program.pid)
    piled = procfs.grows(lambda: procfs.torch_fds(producer), by=8)
    return piled and procfs.torch_maps(producer) <= 4


def mappings_are_many(program: Program) -> bool:
    """Tens of thousands of lines in maps."""
    return procfs.text(program.pid, "maps").count("\n") > 20_000


def shm_of_its_own_fills(program: Program) -> bool:
    """A small /dev/shm of its own, with less free space from batch to batch."""
    room = os.statvfs(f"/proc/{program.pid}/root/dev/shm")
    path = f"/proc/{program.pid}/root/dev/shm"
    return room.f_blocks * room.f_frsize < 64 << 20 and procfs.grows(
        lambda: -os.statvfs(path).f_bfree, by=256
    )


def files_run_out(program: Program) -> bool:
    """A /dev/shm that allows few files, with fewer left from step to step."""
    path = f"/proc/{program.pid}/root/dev/shm"
    return os.statvfs(path).f_files < 2000 and procfs.grows(
        lambda: -os.statvfs(path).f_ffree, by=20
    )


def pipes_stay_open(program: Program) -> bool:
    """Main has ever more descriptors of pipes and sockets."""
    return procfs.grows(lambda: len(os.listdir(f"/proc/{program.pid}/fd")), by=6)


def a_manager_is_asked(program: Program) -> bool:
    """Several children read from sockets in a system call."""

    def readers() -> int:
        return sum(procfs.call(child) == READ for child in procfs.children(program.pid))

    return eventually(lambda: readers() >= 2)


def children_write_one_file(program: Program) -> bool:
    """Two children have the same checkpoint open."""

    def is_open_twice() -> bool:
        opened = [link for child in procfs.children(program.pid) for link in procfs.links(child)]
        return sum(link.endswith(".pt") for link in opened) == 2

    return eventually(is_open_twice)


def is_killed(program: Program) -> bool:
    """It ends by SIGKILL."""
    return program.wait_unreaped(20) == -signal.SIGKILL


def shared_memory_is_sparse(program: Program) -> bool:
    """A segment that is larger than what it occupies, and than what is left."""
    (path,) = glob.glob(f"/proc/{program.pid}/root/dev/shm/psm_*")
    segment, room = os.stat(path), os.statvfs(path)
    missing = segment.st_size - segment.st_blocks * 512
    return missing > room.f_bfree * room.f_frsize


def segments_of_the_dead(_program: Program) -> bool:
    """Named segments whose maker is gone."""
    names = [os.path.basename(path) for path in glob.glob("/dev/shm/torch_*")]
    return sum(not procfs.is_alive(int(name.split("_")[1])) for name in names) >= 12


def page_faults_race(program: Program) -> bool:
    """Thousands of pages taken a second by the producer."""
    return procfs.grows(lambda: int(procfs.fields(program.pid)[7]), by=10_000)


def main_blocks_in(number: int) -> Signal:
    """The main thread is blocked in a system call."""
    return lambda program: eventually(lambda: procfs.call(program.pid) == number)


def children_block_in(number: int, count: int) -> Signal:
    """So many children are blocked in a system call."""

    def check(program: Program) -> bool:
        return eventually(
            lambda: (
                [procfs.call(pid) for pid in procfs.children(program.pid)].count(number) == count
            )
        )

    return check


def main_sleeps_while_its_children_are_idle(program: Program) -> bool:
    """One child reads the queue of tasks, the other one waits for its turn; main only sleeps."""

    def idles() -> bool:
        calls = set(map(procfs.call, procfs.children(program.pid)))
        return calls == {READ, FUTEX} and procfs.call(program.pid) in NANOSLEEP

    return eventually(idles)


def forked_child_has_its_parents_lock(program: Program) -> bool:
    """A child of one thread waits on a futex; its parent has more threads."""
    (child,) = procfs.children(program.pid)
    stuck = eventually(lambda: procfs.call(child) == FUTEX)
    return stuck and len(procfs.threads(program.pid)) > len(procfs.threads(child))


def writer_waits_for_its_joiner(program: Program) -> bool:
    """A thread of the child writes to a full pipe; the parent waits for the child."""
    (child,) = procfs.children(program.pid)

    def deadlocked() -> bool:
        calls = {procfs.call(child, tid) for tid in procfs.threads(child)}
        return WRITE in calls and procfs.call(program.pid) == WAIT4

    return eventually(deadlocked)


def worker_waits_for_bytes(program: Program) -> bool:
    """A worker is blocked in recv."""
    return eventually(lambda: RECV in map(procfs.call, procfs.workers(program.pid)))


def has_thread(name: str) -> Signal:
    """A thread of the main process has this name."""
    return lambda program: eventually(lambda: name in procfs.thread_names(program.pid))


def workers_leave_in_mid_epoch(program: Program) -> bool:
    """The workers run, and then have exited, while main still runs."""
    assert procfs.workers(program.pid)
    return eventually(
        lambda: not any(map(procfs.is_alive, procfs.workers(program.pid)))
    ) and procfs.is_alive(program.pid)


def is_in_a_cgroup_of_its_own(program: Program) -> bool:
    """The limit is that of its own cgroup."""
    return f"mpwatch-demo-{program.pid}" in procfs.text(program.pid, "cgroup")


def survivors(words: str) -> Signal:
    """Once main is killed, a process with these words in its command line or name still runs."""

    def check(program: Program) -> bool:
        below = procfs.descendants(program.pid)
        program.wait_unreaped(20)
        return any(
            procfs.is_alive(pid) and words in procfs.text(pid, "cmdline") + procfs.text(pid, "comm")
            for pid in below
        )

    return check


def zombies_gather(program: Program) -> bool:
    """Children that have ended and were not waited for."""
    return eventually(
        lambda: [procfs.fields(pid)[:1] for pid in procfs.children(program.pid)].count(["Z"]) >= 10
    )


def maps_contain(words: str) -> Signal:
    """A line of maps contains both words."""
    first, second = words.split()

    def check(program: Program) -> bool:
        def found() -> bool:
            lines = procfs.text(program.pid, "maps").splitlines()
            return any(first in line and second in line for line in lines)

        return eventually(found)

    return check


def workers_grow(key: str, mib: int) -> Signal:
    """A worker's private memory rises by so many MiB."""

    def check(program: Program) -> bool:
        worker = procfs.workers(program.pid)[0]
        return procfs.grows(lambda: procfs.rollup_kib(worker, key) >> 10, by=mib)

    return check


def batches_wait_in_shared_memory(program: Program) -> bool:
    """Segments of more than 40 MiB exist that main has not fetched."""

    def waiting() -> int:
        everybody = [program.pid, *procfs.workers(program.pid)]
        return sum(map(procfs.torch_fds, everybody))

    return eventually(lambda: waiting() >= 20)


def child_count_reaches(count: int) -> Signal:
    """So many children."""
    return lambda program: eventually(lambda: len(procfs.children(program.pid)) >= count)


def descendant_runs(words: str) -> Signal:
    """A process below it has these words in its command line."""
    return lambda program: eventually(
        lambda: any(words in procfs.text(pid, "cmdline") for pid in procfs.descendants(program.pid))
    )


def grandchild_was_spawned(program: Program) -> bool:
    """A child of the child was started by spawn."""
    (trainer,) = [pid for pid in procfs.children(program.pid) if procfs.children(pid)]
    return any("spawn_main" in procfs.text(pid, "cmdline") for pid in procfs.children(trainer))


def main_is_blocked(program: Program) -> bool:
    """The main thread is blocked in most of twenty readings."""
    looks: list[bool] = []

    def looked_twenty_times() -> bool:
        looks.append(procfs.call(program.pid) not in (None, *NANOSLEEP))
        return len(looks) >= 20

    return eventually(looked_twenty_times) and sum(looks) > 10


def one_holds_the_lock_of_the_others(program: Program) -> bool:
    """In most of twenty readings, all children but one wait for a semaphore."""
    looks: list[bool] = []

    def looked_twenty_times() -> bool:
        calls = [procfs.call(child) for child in procfs.children(program.pid)]
        looks.append(sum(call == FUTEX for call in calls) >= len(calls) - 1 > 1)
        return len(looks) >= 20

    return eventually(looked_twenty_times) and sum(looks) > 10


def one_worker_is_slow(program: Program) -> bool:
    """One worker sleeps in its sample while the three others wait for work."""

    def one_of_four() -> bool:
        calls = [procfs.call(pid) for pid in procfs.workers(program.pid)]
        return len(calls) == 4 and sum(number in NANOSLEEP for number in calls) == 1

    return eventually(one_of_four)


def workers_have_many_threads(program: Program) -> bool:
    """More runnable threads than cores."""
    return eventually(
        lambda: (
            sum(
                procfs.text(pid, f"task/{tid}/stat").rpartition(")")[2].split()[:1] == ["R"]
                for pid in procfs.workers(program.pid)
                for tid in procfs.threads(pid)
            )
            > len(os.sched_getaffinity(0))
        )
    )


def workers_share_a_core(program: Program) -> bool:
    """All workers may run on one and the same core only."""
    cores = {tuple(os.sched_getaffinity(pid)) for pid in procfs.workers(program.pid)}
    return len(cores) == 1 and len(cores.pop()) == 1


def threads_take_turns(program: Program) -> bool:
    """Four busy threads beside the main one."""
    return eventually(lambda: len(procfs.threads(program.pid)) >= 5)


def ranks_are(sleeping: int, count: int) -> Signal:
    """Of so many ranks, so many sleep; the others wait for them."""

    def check(program: Program) -> bool:
        def as_said() -> bool:
            calls = [procfs.call(pid) for pid in procfs.children(program.pid)]
            ranks = [number for number in calls if number in (FUTEX, *NANOSLEEP)]
            return len(ranks) == count and sum(n in NANOSLEEP for n in ranks) == sleeping

        return eventually(as_said)

    return check


def ranks_outlive_their_agent(program: Program) -> bool:
    """Processes with a rank in their environment whose parent is no longer torchrun."""
    ranks = [
        pid for pid in procfs.descendants(program.pid) if "RANK=" in procfs.text(pid, "environ")
    ]
    return len(ranks) == 2 and eventually(
        lambda: all(procfs.is_alive(pid) and procfs.fields(pid)[1] == "1" for pid in ranks)
    )


def has_a_terminal(program: Program) -> bool:
    """The processes below it have a controlling terminal and handle SIGHUP."""
    (agent,) = procfs.children(program.pid)
    caught = int(procfs.text(agent, "status").partition("SigCgt:")[2].split()[0], 16)
    return procfs.fields(agent)[4] != "0" and bool(caught & 1)


def children_write_much(program: Program) -> bool:
    """The children write tens of megabytes into a pipe."""

    def written() -> int:
        counts = (procfs.text(child, "io") for child in procfs.children(program.pid))
        return sum(int(each.split("wchar:")[1].split()[0]) for each in counts)

    return procfs.grows(written, by=20 << 20)


def workers_hold_many_tensors(program: Program) -> bool:
    """A worker has hundreds of descriptors on tensors that main has not fetched."""
    return eventually(
        lambda: any(procfs.torch_fds(child) > 300 for child in procfs.children(program.pid))
    )


def children_wait_for_a_disk(program: Program) -> bool:
    """Children are found in uninterruptible sleep again and again."""

    def waits() -> bool:
        return any(procfs.fields(child)[0] == "D" for child in procfs.children(program.pid))

    return all(eventually(waits) for _ in range(5))


def main_reads_from_a_socket(program: Program) -> bool:
    """Its main thread is found in a read from a socket again and again, and not in epoll."""
    return all(eventually(lambda: procfs.call(program.pid) == RECV) for _ in range(5))


def children_follow_each_other(program: Program) -> bool:
    """Each of several readings finds a child that the others have not found."""
    seen: set[int] = set()

    def has_another() -> bool:
        new = set(procfs.children(program.pid)) - seen
        seen.update(new)
        return bool(new)

    return all(eventually(has_another) for _ in range(8))


def children_take_fresh_pages(program: Program) -> bool:
    """Many thousands of pages taken a second by the children."""

    def taken() -> int:
        return sum(int(procfs.fields(child)[7]) for child in procfs.children(program.pid))

    return procfs.grows(taken, by=100_000)


def has_cuda_counters(program: Program) -> bool:
    """It has mapped a file of reference counters for the tensors it has sent."""
    return eventually(lambda: f"/dev/shm/torch_{program.pid}_" in procfs.text(program.pid, "maps"))


def workers_have_the_gpu_open(program: Program) -> bool:
    """All DataLoader workers have a descriptor of the GPU."""

    def count() -> int:
        return sum(
            any(link.startswith("/dev/nvidia") for link in procfs.links(pid))
            for pid in procfs.descendants(program.pid)
        )

    return eventually(lambda: count() >= 2)


def has_in_environment(setting: str) -> Signal:
    """It was executed with a variable of the environment."""
    return lambda program: setting in procfs.text(program.pid, "environ").split("\0")


def main_computes_and_workers_do_not(program: Program) -> bool:
    """Main takes a second of cpu time in which its loader workers take less than a quarter."""
    pids = [program.pid, *procfs.workers(program.pid)]
    before = [procfs.cpu_ticks(pid) for pid in pids]

    def is_uneven() -> bool:
        main, *workers = (
            procfs.cpu_ticks(pid) - ticks for pid, ticks in zip(pids, before, strict=True)
        )
        return main >= os.sysconf("SC_CLK_TCK") and len(workers) == 2 and sum(workers) < main / 4

    return eventually(is_uneven)


SIGNALS: dict[str, Signal] = {
    "healthy": says("epoch"),
    "fd-exhaustion-receiver": received_tensors_are_kept,
    "fd-exhaustion-producer": unsent_tensors_pile_up,
    "max-map-count": mappings_are_many,
    "shm-full-enospc": shm_of_its_own_fills,
    "shm-full-sigbus": shared_memory_is_sparse,
    "shm-inodes": files_run_out,
    "semlock-enospc": says("cannot start the loader, trying again: [Errno 28] No space left"),
    "file-system-strategy-leak": segments_of_the_dead,
    "shm-manager-failure": says("cannot share: "),
    "producer-exits-before-get": says("FileNotFoundError: [Errno 2]"),
    "raw-fork-inherits-sharer": says("KeyError: "),
    "tmpdir-socket-path-too-long": says("OSError: AF_UNIX path too long"),
    "sharedcache-lock-reentry": main_blocks_in(FUTEX),
    "sharedcache-growth": says("sum 1999000"),
    "queue-aliasing-inplace-write": says("20 of 20 messages changed"),
    "share-memory-dangling-numpy": says("tensor moved: True"),
    "unreused-buffers-copied": page_faults_race,
    "spawn-temporary-tensor-fd": says(
        "RuntimeError: unable to resize file <filename not specified>"
    ),
    "batch-of-different-shapes": says("cannot make a batch: RuntimeError: "),
    "forkserver-too-many-fds": says("cannot start the loader: too many fds"),
    "spawn-unpicklable-object": says("cannot start the loader: Can't pickle local object"),
    "start-method-inheritance": grandchild_was_spawned,
    "no-main-guard": says("child ended with 1"),
    "main-not-importable": says("AttributeError: Can't get attribute 'work'"),
    # Whether a program on standard input has a file by name differs between Pythons.
    "pool-from-stdin": says(
        "AttributeError: Can't get attribute 'double'", "FileNotFoundError: [Errno 2]"
    ),
    "context-already-set": says("cannot choose spawn: context has already been set"),
    "semlock-cross-context": says("cannot start: A SemLock created in a fork context"),
    "nested-daemonic": says("cannot evaluate: daemonic processes are not allowed"),
    "spawn-startup-cost": descendant_runs("spawn_main"),
    "spawn-join-false-lost-semaphores": says("FileNotFoundError: [Errno 2]"),
    "fork-with-threads-lock": forked_child_has_its_parents_lock,
    "fork-openmp": forked_child_has_its_parents_lock,
    "feeder-thread-drops-batch": says("TypeError: cannot pickle 'generator' object"),
    "queue-lock-held-by-dead": children_block_in(FUTEX, 2),
    "event-set-hangs": main_blocks_in(FUTEX),
    "barrier-of-the-dead": children_block_in(FUTEX, 2),
    "two-full-pipes": main_blocks_in(WRITE),
    "no-progress": main_blocks_in(READ),
    "pool-hang-after-worker-death": main_blocks_in(FUTEX),
    "joinablequeue-join-hangs": main_blocks_in(FUTEX),
    "half-message": main_blocks_in(READ),
    "queue-join-feeder-deadlock": writer_waits_for_its_joiner,
    "stuck-worker-io": worker_waits_for_bytes,
    "fork-vs-pin-thread": has_thread("pt_data_pin"),
    "inherited-iterator-del": workers_leave_in_mid_epoch,
    "worker-oom-killed": is_in_a_cgroup_of_its_own,
    "main-oom-killed": is_in_a_cgroup_of_its_own,
    "main-killed": is_killed,
    "worker-segfault": says("ERROR: Unexpected segmentation fault encountered in worker"),
    # `(pid(s) 7)` from the wait for a batch, or `(pid 7)` where SIGCHLD comes at another line.
    "worker-exited-unexpectedly": says("RuntimeError: DataLoader worker (pid"),
    "sigchld-raises-anywhere": says("RuntimeError: DataLoader worker (pid"),
    "pin-memory-thread-death": received_tensors_are_kept,
    "orphaned-workers": survivors("pt_data_work"),
    "zombie-processes": zombies_gather,
    "resource-tracker-leaks": survivors("resource_tracker"),
    "shared-memory-tracker-unlink": maps_contain("/dev/shm/psm_ (deleted)"),
    "pids-limit": is_in_a_cgroup_of_its_own,
    "copy-on-write-growth": workers_grow("Private_Dirty", mib=4),
    "steady-growth": pipes_stay_open,
    "bottleneck-process": a_manager_is_asked,
    "persistent-workers-leak": workers_grow("Private_Dirty", mib=4),
    "prefetch-memory-blowup": batches_wait_in_shared_memory,
    "loader-iterator-leak": child_count_reaches(4),
    "compile-worker-pool": descendant_runs("compile_worker"),
    "loader-starvation": main_is_blocked,
    "straggler-worker": one_worker_is_slow,
    "cpu-oversubscription": workers_have_many_threads,
    "cpu-affinity-collapse": workers_share_a_core,
    "gil-bound-threads": threads_take_turns,
    "numpy-rng-identical": says("epoch 1: 32 different of 64 numbers"),
    "shared-file-offset": says("epoch 1: "),
    "shared-connection": children_block_in(RECV, 2),
    "hogwild-not-shared": says("the main process's model has changed: False"),
    "iterable-duplicates": says("epoch 1: 200 samples of 100"),
    "rank-stuck-in-collective": ranks_are(sleeping=1, count=2),
    "collective-mismatch": ranks_are(sleeping=0, count=3),
    "torchrun-root-cause-misread": says("torch.distributed.elastic.multiprocessing.errors.Child"),
    "torchrun-agent-killed-orphans": ranks_outlive_their_agent,
    "torchrun-sighup": has_a_terminal,
    "store-port-in-use": says("cannot start: The server socket has failed to listen"),
    "lock-contention": one_holds_the_lock_of_the_others,
    "pipeline-bottleneck": main_is_blocked,
    "pickling-cost": children_write_much,
    "many-small-tensors": workers_hold_many_tensors,
    "blocked-event-loop": main_reads_from_a_socket,
    "program-per-round": children_follow_each_other,
    "disk-waits": children_wait_for_a_disk,
    "page-fault-cost": children_take_fresh_pages,
    "task-errors-unread": main_sleeps_while_its_children_are_idle,
    "collective-checks": says("checked collectives take"),
    "batch-of-unknown-type": says("cannot make a batch: default_collate: "),
    "cuda-in-forked-child": says("cannot load: RuntimeError: Cannot re-initialize CUDA"),
    "cuda-ipc-producer-exit": says("the producer ended with 0"),
    "cuda-ipc-limbo": has_cuda_counters,
    "cuda-ipc-counter-files-and-events": has_cuda_counters,
    "cuda-contexts-everywhere": workers_have_the_gpu_open,
    "cuda-launch-blocking": has_in_environment("CUDA_LAUNCH_BLOCKING=1"),
    "cuda-ipc-allocator-mismatch": says("cannot send: "),
    "gradients-not-reduced": says("the weights of the ranks differ by"),
    "hot-spot": main_computes_and_workers_do_not,
    "ranks-decide-alone": says("the learning rates of the ranks differ by"),
    "checkpoint-many-writers": children_write_one_file,
}

"""The catalogue of demonstrations: a table of scenarios for each chapter, and how one is run."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from dataclasses import dataclass

from mpwatch.demo.bounds import has_gpu, may_limit, may_mount


@dataclass(frozen=True)
class Scenario:
    """The failure that a program shows, and the findings expected from a diagnosis."""

    name: str
    """The rule id of the failure, if it has one."""
    title: str
    """One line for `--list`."""
    expected: tuple[str, ...]
    """Rule ids that must all be found; none for a healthy program."""
    neighbour: str = ""
    """The difference with `--mended`, with which nothing is wrong; empty if there is no variant."""
    also: tuple[str, ...] = ()
    """Rule ids that also hold, so that finding them is no false alarm."""
    layer: str = "proc"
    """The least intrusive source that shows the failure: `proc`, `stacks` or `hook`."""
    shows_s: float = 10.0
    """Seconds from the line `ready` until an observer can see the failure."""
    damage_s: float | None = None
    """Seconds from `ready` to the damage; `None` if it is done by then or never is."""
    says: str = ""
    """Beginning of the line it prints when the damage is done; empty if it exits instead."""
    ends: str = ""
    """How it exits by itself; empty if it runs until its time is over."""
    needs: tuple[str, ...] = ()
    """What it needs besides Linux, Python and a CPU build of torch."""
    arguments: tuple[str, ...] = ()
    """Command line arguments of the program."""
    not_runnable: str = ""
    """Why there is no program for this entry; empty if there is one."""
    is_alone: bool = False
    """It loads the machine or leaves files on it: no other program may be measured meanwhile."""
    program: str = ""
    """Stem of the program's file, where several scenarios share one."""

    @property
    def stem(self) -> str:
        """The name of the program's file, without `.py`."""
        return self.program or self.name.replace("-", "_")


def scenarios() -> tuple[Scenario, ...]:
    """All scenarios, healthy ones first, including those without a program."""
    return SCENARIOS


def find(name: str) -> Scenario:
    """The scenario of this name.

    Raises:
        KeyError: No scenario has this name.
    """
    for scenario in scenarios():
        if scenario.name == name:
            return scenario
    raise KeyError(name)


def command(
    scenario: Scenario,
    python: str = sys.executable,
    seconds: float | None = None,
    *,
    mended: bool = False,
) -> list[str]:
    """Arguments that run a scenario.

    Args:
        scenario: One with a program.
        python: An interpreter that can import torch and `mpwatch.demo`.
        seconds: How long it may run; the program's default if `None`.
        mended: Run the healthy variant of the program instead.

    Raises:
        ValueError: The scenario has no program, or no healthy variant; the text says why.
    """
    if scenario.not_runnable:
        raise ValueError(f"{scenario.name} cannot be run: {scenario.not_runnable}")
    script = os.path.join(
        os.path.dirname(os.path.abspath(__file__)), "programs", f"{scenario.stem}.py"
    )
    if mended and not scenario.neighbour:
        raise ValueError(f"{scenario.name} has no healthy variant")
    limit = [] if seconds is None else ["--seconds", f"{seconds:g}"]
    right = ["--mended"] if mended else []
    return [python, script, *scenario.arguments, *right, *limit]


def obstacle(scenario: Scenario) -> str:
    """Why a scenario cannot run on this machine, in a few words; empty if it can."""
    if scenario.not_runnable:
        return scenario.not_runnable
    met: dict[str, Callable[[], bool]] = {
        "mount": may_mount,
        "cgroup": may_limit,
        "python>=3.14": lambda: sys.version_info >= (3, 14),
        "python<3.13": lambda: sys.version_info < (3, 13),
        "gpu": has_gpu,
    }
    words = {
        "mount": "needs the right to mount a /dev/shm of its own: run as root",
        "cgroup": "needs the right to make a cgroup: run as root",
        "gpu": "needs an NVIDIA GPU and a CUDA build of torch",
    }
    missing = [words.get(need, f"needs {need}") for need in scenario.needs if not met[need]()]
    return "; ".join(missing)


# Programs with nothing wrong.
HEALTHY = (
    Scenario(
        name="healthy",
        title="train a small network with four persistent DataLoader workers",
        expected=(),
    ),
)

# Tensors sent between processes.
TRANSPORT = (
    Scenario(
        name="fd-exhaustion-receiver",
        title="keep the labels of every batch until no descriptor is left",
        neighbour="keeps a clone of the labels",
        expected=("fd-exhaustion-receiver",),
        damage_s=40,
        ends="in `Too many open files`",
    ),
    Scenario(
        name="fd-exhaustion-producer",
        title="fill a queue faster than it is read, until the producer has no descriptor left",
        says="OSError: [Errno 24]",
        neighbour="bounds the queue",
        expected=("fd-exhaustion-producer",),
        damage_s=23,
    ),
    Scenario(
        name="max-map-count",
        title="share a dataset tensor by tensor until no mapping is left",
        neighbour="packs many small tensors into one before sharing",
        expected=("max-map-count",),
        damage_s=21,
        ends="in `Cannot allocate memory (12)`",
        needs=("mount",),
    ),
    Scenario(
        name="shm-full-enospc",
        title="keep every batch until a /dev/shm of 48 MiB is full",
        neighbour="keeps only the last twelve batches",
        expected=("shm-full-enospc",),
        damage_s=25,
        ends="in `unable to allocate shared memory`",
        needs=("mount",),
    ),
    Scenario(
        name="shm-inodes",
        title="share small tensors until /dev/shm accepts no further file",
        neighbour="keeps only the last two hundred",
        expected=("shm-full-enospc",),
        damage_s=27,
        ends="in `No space left on device`",
        needs=("mount",),
    ),
    Scenario(
        name="shm-full-sigbus",
        title="write to shared memory for which there is no space",
        neighbour="makes the cache no larger than /dev/shm",
        expected=("shm-full-sigbus",),
        also=(
            "shm-full-enospc",
            "semlock-enospc",
            "sigchld-raises-anywhere",
            "loader-starvation",
        ),
        damage_s=11,
        ends="in `killed by signal: Bus error`",
        needs=("mount",),
    ),
    Scenario(
        name="semlock-enospc",
        title="start a DataLoader where /dev/shm has no space for a semaphore",
        neighbour="removes the files of the earlier job",
        expected=("semlock-enospc",),
        also=("shm-full-enospc",),
        needs=("mount",),
    ),
    Scenario(
        name="file-system-strategy-leak",
        title="train where a killed job left its segments",
        neighbour="torch_shm_manager of the earlier job is not killed, and cleans up",
        expected=("file-system-strategy-leak",),
        is_alone=True,
    ),
    Scenario(
        name="shm-manager-failure",
        title="share under the file_system strategy where torch_shm_manager cannot start",
        neighbour="TMPDIR is a directory that exists",
        expected=("shm-manager-failure",),
        also=("zombie-processes",),  # torch does not reap a torch_shm_manager that failed to start
        layer="hook",
    ),
    Scenario(
        name="producer-exits-before-get",
        title="receive a tensor from a process that has exited",
        neighbour="the producer runs until its tensor was received",
        expected=("producer-exits-before-get",),
        damage_s=15,
        ends="in FileNotFoundError",
    ),
    Scenario(
        name="raw-fork-inherits-sharer",
        title="send a tensor from a process made with os.fork",
        neighbour="sends no tensor before the fork",
        expected=("raw-fork-inherits-sharer",),
        layer="hook",
    ),
    Scenario(
        name="tmpdir-socket-path-too-long",
        title="work in a temporary directory whose path is too long for a socket",
        neighbour="works in a directory with a shorter path",
        expected=("tmpdir-socket-path-too-long",),
        also=("feeder-thread-drops-batch",),
    ),
    Scenario(
        name="sharedcache-race",
        title="change torch's table of segments from several threads",
        expected=("sharedcache-race",),
        not_runnable="fixed in torch 1.9",
    ),
    Scenario(
        name="sharedcache-lock-reentry",
        title="receive a tensor in a signal handler while receiving another",
        neighbour="the handler sets a flag, and the main loop receives",
        expected=("sharedcache-lock-reentry",),
        layer="stacks",
    ),
    Scenario(
        name="sharedcache-growth",
        title="hold thousands of tensors at once, then delete them",
        neighbour="removes the expired entries from the table",
        expected=("sharedcache-growth",),
        layer="hook",
    ),
    Scenario(
        name="queue-aliasing-inplace-write",
        title="go on writing to a tensor that was put on a queue",
        neighbour="puts a clone on the queue",
        expected=("queue-aliasing-inplace-write",),
        layer="hook",
    ),
    Scenario(
        name="share-memory-dangling-numpy",
        title="keep a numpy view of a tensor that moves to shared memory",
        neighbour="shares the tensor before it takes the view",
        expected=("share-memory-dangling-numpy",),
        layer="hook",
    ),
    Scenario(
        name="unreused-buffers-copied",
        title="send a new tensor each time instead of a reused buffer",
        neighbour="sends four buffers back and forth",
        expected=("unreused-buffers-copied",),
        is_alone=True,
    ),
    Scenario(
        name="spawn-temporary-tensor-fd",
        title="send a spawned process a tensor that exists only while it is pickled",
        neighbour="keeps the packed tensor as long as the object exists",
        expected=("spawn-temporary-tensor-fd",),
        also=("worker-exited-unexpectedly",),
        layer="hook",
    ),
    Scenario(
        name="forkserver-too-many-fds",
        title="start a worker through the fork server with 300 tensors",
        neighbour="stacks the 300 tensors into one",
        expected=("forkserver-too-many-fds",),
        layer="hook",
    ),
    Scenario(
        name="fds-to-keep-duplicate",
        title="send two views of one storage to a spawned process",
        expected=("fds-to-keep-duplicate",),
        not_runnable="fixed in current versions of torch",
    ),
    Scenario(
        name="batch-of-different-shapes",
        title="stack samples of different shapes into one batch in shared memory",
        neighbour="cuts all samples to one shape",
        expected=("batch-of-different-shapes",),
        layer="hook",
    ),
    Scenario(
        name="batch-of-unknown-type",
        title="put a sample that is None into a batch",
        neighbour="replaces it by another sample",
        expected=("batch-of-unknown-type",),
        layer="hook",
    ),
)

# Start methods and pickling.
STARTING = (
    Scenario(
        name="spawn-unpicklable-object",
        title="pass a dataset with a lambda deep inside to spawned workers",
        neighbour="uses a function of the module instead of the lambda",
        expected=("spawn-unpicklable-object",),
        layer="hook",
    ),
    Scenario(
        name="python314-forkserver-default",
        title="run a program written for fork where forkserver is the default",
        neighbour="uses a function that can be pickled",
        expected=("python314-forkserver-default",),
        also=("spawn-unpicklable-object",),
        layer="hook",
        needs=("python>=3.14",),
    ),
    Scenario(
        name="start-method-inheritance",
        title="use a DataLoader in a spawned process, whose workers are then spawned too",
        neighbour="gives the loader its start method",
        expected=("start-method-inheritance",),
    ),
    Scenario(
        name="no-main-guard",
        title="start a spawned process from a script without a main guard",
        neighbour="has a main guard",
        expected=("no-main-guard",),
        also=("worker-exited-unexpectedly",),
        layer="stacks",
    ),
    Scenario(
        name="main-not-importable",
        title="spawn a function of a program that has no file",
        neighbour="is run as a file",
        expected=("main-not-importable",),
        also=("worker-exited-unexpectedly",),
        layer="hook",
    ),
    Scenario(
        name="pool-from-stdin",
        title="spawn a Pool from a program read from standard input",
        neighbour="is run as a file",
        expected=("main-not-importable",),
        also=(
            "worker-exited-unexpectedly",
            "pool-hang-after-worker-death",
            "spawn-startup-cost",
        ),
        shows_s=20,
    ),
    Scenario(
        name="context-already-set",
        title="set the start method a second time",
        neighbour="uses a context of its own instead of setting the default",
        expected=("context-already-set",),
        layer="hook",
    ),
    Scenario(
        name="semlock-cross-context",
        title="give a spawned process a queue made for forked ones",
        neighbour="creates queue and process from one context",
        expected=("semlock-cross-context",),
        layer="hook",
    ),
    Scenario(
        name="nested-daemonic",
        title="use a DataLoader with workers inside a Pool worker",
        neighbour="uses no DataLoader workers inside the Pool",
        expected=("nested-daemonic",),
        layer="hook",
    ),
    Scenario(
        name="spawn-startup-cost",
        title="start new spawned workers for each short epoch",
        neighbour="keeps the workers from epoch to epoch",
        expected=("spawn-startup-cost",),
        also=("loader-starvation",),
        shows_s=15,
    ),
    Scenario(
        name="spawn-join-false-lost-semaphores",
        title="delete a queue before the spawned process that needs it has started up",
        neighbour="keeps the queue until the process has exited",
        expected=("spawn-join-false-lost-semaphores",),
        also=("worker-exited-unexpectedly",),
        layer="hook",
    ),
)

# Deadlocks and hangs.
HANGS = (
    Scenario(
        name="fork-with-threads-lock",
        title="fork while another thread holds a lock the child needs",
        neighbour="forks before it starts the thread",
        expected=("fork-with-threads-lock",),
        layer="stacks",
        shows_s=15,
    ),
    Scenario(
        name="fork-openmp",
        title="fork after a parallel operator, and run another in the child",
        neighbour="sets the child to one thread before its first operator",
        expected=("fork-openmp",),
        also=("fork-with-threads-lock",),
        layer="stacks",
        shows_s=15,
    ),
    Scenario(
        name="fork-unsafe-library",
        title="fork while threads of OpenCV or gRPC run",
        expected=("fork-unsafe-library",),
        not_runnable="needs a library with native threads of its own; none is a dependency here",
    ),
    Scenario(
        name="feeder-thread-drops-batch",
        title="lose a batch in a worker's feeder thread and wait for it",
        neighbour="converts the generator to a list",
        expected=("feeder-thread-drops-batch",),
        layer="stacks",
        shows_s=15,
    ),
    Scenario(
        name="queue-lock-held-by-dead",
        title="kill a consumer that waits for work",
        neighbour="asks the consumer to exit instead of killing it",
        expected=("queue-lock-held-by-dead",),
        also=("worker-exited-unexpectedly",),
        layer="stacks",
        shows_s=15,
    ),
    Scenario(
        name="event-set-hangs",
        title="set an event that a killed process was waiting for",
        neighbour="does not kill the process",
        expected=("event-set-hangs",),
        also=("worker-exited-unexpectedly",),
        layer="stacks",
        shows_s=15,
    ),
    Scenario(
        name="barrier-of-the-dead",
        title="wait at a barrier for a process that failed before it arrived",
        neighbour="continues after a loss that is not a number",
        expected=("event-set-hangs",),
        also=("worker-exited-unexpectedly",),
        layer="stacks",
        shows_s=15,
    ),
    Scenario(
        name="two-full-pipes",
        title="send in both directions before either side receives",
        neighbour="one side receives before it sends",
        expected=("standing-still",),
        shows_s=30,
    ),
    Scenario(
        name="no-progress",
        title="wait for an evaluator that waits for a file with another name",
        neighbour="writes the checkpoint under the name that the evaluator waits for",
        expected=("no-progress",),
        layer="stacks",
        shows_s=25,
    ),
    Scenario(
        name="pool-hang-after-worker-death",
        title="lose a Pool worker in the middle of a task",
        neighbour="no task kills its worker",
        expected=("pool-hang-after-worker-death",),
        also=("worker-exited-unexpectedly",),
        layer="stacks",
        shows_s=15,
    ),
    Scenario(
        name="joinablequeue-join-hangs",
        title="join a queue of which one consumer exited during a task",
        neighbour="no consumer exits during a task",
        expected=("joinablequeue-join-hangs",),
        also=("worker-exited-unexpectedly",),
        layer="stacks",
        shows_s=15,
    ),
    Scenario(
        name="half-message",
        title="kill a process while it writes a message",
        neighbour="the writer is not killed",
        expected=("half-message",),
        also=("worker-exited-unexpectedly",),
        layer="stacks",
        shows_s=15,
    ),
    Scenario(
        name="queue-join-feeder-deadlock",
        title="join a process before reading what it has put on a queue",
        neighbour="reads before it joins",
        expected=("queue-join-feeder-deadlock",),
        shows_s=15,
    ),
    Scenario(
        name="stuck-worker-io",
        title="read samples from a server that has stopped answering",
        neighbour="the server answers after three seconds",
        expected=("stuck-worker-io",),
        shows_s=25,
    ),
    Scenario(
        name="fork-vs-pin-thread",
        title="fork the validation loader's workers while a pin thread runs",
        neighbour="starts the validation loader's workers first and keeps them",
        expected=("fork-vs-pin-thread",),
    ),
    Scenario(
        name="inherited-iterator-del",
        title="drop an inherited DataLoader iterator in a forked child",
        neighbour="the child keeps the inherited iterator",
        expected=("inherited-iterator-del",),
        also=("worker-exited-unexpectedly", "sigchld-raises-anywhere"),
        layer="hook",
        damage_s=4,
        ends="in a hang or `state does not match shutdown flag`",
    ),
)

# Exits of processes.
EXITS = (
    Scenario(
        name="worker-oom-killed",
        title="decode ever larger samples until the kernel kills a worker for memory",
        neighbour="keeps only the last ten samples",
        expected=("worker-oom-killed",),
        also=("persistent-workers-leak", "sigchld-raises-anywhere", "loader-starvation"),
        damage_s=22,
        ends="in `exited unexpectedly`, caused by `killed by signal: Killed`",
        needs=("cgroup",),
    ),
    Scenario(
        name="main-oom-killed",
        title="keep the whole history in the main process until the kernel kills it for memory",
        neighbour="keeps only the last eight steps",
        expected=("worker-oom-killed",),
        damage_s=25,
        ends="by SIGKILL",
        needs=("cgroup",),
    ),
    Scenario(
        name="main-killed",
        title="lose the main process to a SIGKILL from outside",
        neighbour="is stopped with SIGTERM",
        expected=("main-killed",),
        damage_s=8,
        ends="by SIGKILL",
    ),
    Scenario(
        name="worker-segfault",
        title="crash in native code in a worker",
        neighbour="has no damaged sample",
        expected=("worker-segfault",),
        also=("sigchld-raises-anywhere", "loader-starvation"),
        damage_s=5,
        ends="in `exited unexpectedly`, caused by `killed by signal: Segmentation fault`",
    ),
    Scenario(
        name="worker-exited-unexpectedly",
        title="end a worker with os._exit in the middle of an epoch",
        neighbour="the licence does not expire",
        expected=("worker-exited-unexpectedly",),
        also=("sigchld-raises-anywhere", "loader-starvation"),
        damage_s=5,
        ends="in `exited unexpectedly`",
    ),
    Scenario(
        name="sigchld-raises-anywhere",
        title="fail at an unrelated line because a worker exited",
        neighbour="no worker exits",
        expected=("sigchld-raises-anywhere",),
        also=("worker-segfault",),
        layer="hook",
        damage_s=6,
        ends="in `killed by signal: Aborted`, raised in the optimizer's line",
    ),
    Scenario(
        name="pin-memory-thread-death",
        title="lose the thread that pins batches because no descriptor is left",
        neighbour="keeps clones of the batches",
        expected=("pin-memory-thread-death",),
        also=("fd-exhaustion-receiver",),
        layer="hook",  # seen from outside, the thread and main end a quarter of a second apart
        damage_s=13,
        ends="in `Pin memory thread exited unexpectedly`",
    ),
    Scenario(
        name="orphaned-workers",
        title="kill a main process whose workers continue",
        neighbour="the main process exits normally",
        expected=("orphaned-workers",),
        damage_s=6,
        ends="6 s after `ready` the main process is killed, 40 s later the workers are killed",
    ),
    Scenario(
        name="zombie-processes",
        title="start a tool for every batch and never wait for it",
        neighbour="waits for each tool",
        expected=("zombie-processes",),
        shows_s=15,
    ),
    Scenario(
        name="resource-tracker-leaks",
        title="kill the main process of a spawned job, which leaves its semaphores",
        neighbour="stops its worker and exits normally",
        expected=("resource-tracker-leaks",),
        also=("orphaned-workers",),
        damage_s=6,
        ends="6 s after `ready` the main process is killed, 40 s later the worker is killed",
    ),
    Scenario(
        name="shared-memory-tracker-unlink",
        title="attach to shared memory from a program whose exit removes it",
        neighbour="the attaching program unregisters the segment",
        expected=("shared-memory-tracker-unlink",),
        needs=("python<3.13",),
    ),
    Scenario(
        name="pids-limit",
        title="start workers until the container allows no further process",
        says="cannot add task",
        neighbour="keeps at most three of the loaders",
        expected=("pids-limit",),
        also=("loader-iterator-leak",),
        damage_s=15,
        needs=("cgroup",),
    ),
    Scenario(
        name="task-errors-unread",
        title="a Pool task raises, and the loop that counts callbacks waits for it",
        neighbour="no task raises",
        expected=("task-errors-unread",),
        layer="hook",
    ),
)

# Memory that grows.
MEMORY = (
    Scenario(
        name="copy-on-write-growth",
        title="read a large list of Python objects in forked workers",
        neighbour="stores the samples in one numpy array",
        expected=("copy-on-write-growth",),
        shows_s=20,
    ),
    Scenario(
        name="persistent-workers-leak",
        title="cache decoded samples in workers that live as long as the training",
        neighbour="bounds the cache",
        expected=("persistent-workers-leak",),
        shows_s=35,
    ),
    Scenario(
        name="prefetch-memory-blowup",
        title="prefetch twenty batches in each worker",
        neighbour="prefetches two batches a worker",
        expected=("prefetch-memory-blowup",),
    ),
    Scenario(
        name="loader-iterator-leak",
        title="create a new iterator each time the data is read and keep them all",
        neighbour="keeps the data, not the iterators",
        expected=("loader-iterator-leak",),
        shows_s=15,
    ),
    Scenario(
        name="steady-growth",
        title="make a pipe for each request to a worker and close none of them",
        neighbour="closes the pipe after the answer",
        expected=("steady-growth",),
        shows_s=40,
    ),
    Scenario(
        name="compile-worker-pool",
        title="compile a function and keep the pool of compile workers",
        neighbour="shuts the pool down after the compilation",
        expected=("compile-worker-pool",),
    ),
)

# Jobs that are slower than they need be.
THROUGHPUT = (
    Scenario(
        name="loader-starvation",
        title="train faster than the workers can load",
        neighbour="loads samples that are decoded already",
        expected=("loader-starvation",),
        layer="stacks",
        shows_s=30,
        is_alone=True,
    ),
    Scenario(
        name="straggler-worker",
        title="wait for one slow worker while the others have long finished",
        neighbour="takes the batches in the order in which they finish",
        expected=("straggler-worker",),
        also=("loader-starvation",),
        layer="stacks",
        shows_s=20,
    ),
    Scenario(
        name="cpu-oversubscription",
        title="give every worker a pool of threads on too few cores",
        neighbour="uses one thread per worker, and a slow trainer",
        expected=("cpu-oversubscription",),
        also=("loader-starvation",),
        shows_s=15,
        is_alone=True,
    ),
    Scenario(
        name="cpu-affinity-collapse",
        title="run all workers on the one core to which main was bound",
        neighbour="uses all cores, and a slow trainer",
        expected=("cpu-affinity-collapse",),
        also=("loader-starvation", "cpu-oversubscription"),
        shows_s=15,
        is_alone=True,
    ),
    Scenario(
        name="bottleneck-process",
        title="keep the statistics of all workers in the dict of one Manager",
        neighbour="each worker counts for itself and reports now and then",
        expected=("bottleneck-process",),
        layer="stacks",
        shows_s=25,
        is_alone=True,
    ),
    Scenario(
        name="gil-bound-threads",
        title="tokenize in four Python threads, of which one at a time can run",
        neighbour="the threads call operators that release the interpreter lock",
        expected=("gil-bound-threads",),
        layer="stacks",
        shows_s=15,
        is_alone=True,
    ),
    Scenario(
        name="blocked-event-loop",
        title="ask eight questions at a time in coroutines, with a client that is not awaited",
        neighbour="awaits the answers",
        expected=("blocked-event-loop",),
        layer="stacks",
        shows_s=25,
        is_alone=True,
    ),
    Scenario(
        name="lock-contention",
        title="hold the lock of a result while computing it, in four processes",
        neighbour="takes the lock for the addition only",
        expected=("lock-contention",),
        also=("cpu-oversubscription",),
        layer="stacks",
        shows_s=25,
        is_alone=True,
    ),
    Scenario(
        name="pipeline-bottleneck",
        title="feed a learner from two actors that are far slower",
        neighbour="has faster actors and a larger model",
        expected=("pipeline-bottleneck",),
        layer="stacks",
        shows_s=25,
        is_alone=True,
    ),
    Scenario(
        name="pickling-cost",
        title="send frames as lists of numbers through a queue",
        neighbour="sends them as tensors",
        expected=("pickling-cost",),
        layer="stacks",
        shows_s=25,
        is_alone=True,
    ),
    Scenario(
        name="many-small-tensors",
        title="load batches of a thousand tensors of a few numbers each",
        neighbour="concatenates them in collate_fn",
        expected=("many-small-tensors",),
        layer="stacks",
        shows_s=25,
        is_alone=True,
    ),
    Scenario(
        name="program-per-round",
        title="start an interpreter for each file whose size is asked for",
        neighbour="asks for the sizes in the process itself",
        expected=("program-per-round",),
        layer="stacks",
        shows_s=25,
        is_alone=True,
    ),
    Scenario(
        name="disk-waits",
        title="write a log record by record, each through to the disk",
        neighbour="leaves writing to the kernel",
        expected=("disk-waits",),
        shows_s=20,
        is_alone=True,
    ),
    Scenario(
        name="page-fault-cost",
        title="allocate a large work buffer anew for each sample",
        neighbour="allocates it once",
        expected=("page-fault-cost",),
        shows_s=20,
        is_alone=True,
    ),
    Scenario(
        name="hot-spot",
        title="the main process measures all texts again in each epoch, to sort them",
        neighbour="they are measured once, before the first epoch",
        expected=("hot-spot",),
        layer="stacks",
        shows_s=25,
    ),
)

# Silently wrong results.
RESULTS = (
    Scenario(
        name="numpy-rng-identical",
        title="draw augmentations from one generator that every worker has a copy of",
        neighbour="creates the generator in each worker",
        expected=("numpy-rng-identical",),
        also=("loader-starvation",),
        layer="hook",
    ),
    Scenario(
        name="shared-file-offset",
        title="read in all workers from a file that was opened before the fork",
        neighbour="reads with pread, which needs no position",
        expected=("shared-file-offset",),
        also=("loader-starvation",),
    ),
    Scenario(
        name="shared-connection",
        title="ask a server in all workers through a connection that was opened before the fork",
        neighbour="connects anew in each worker",
        expected=("shared-connection",),
        also=("loader-starvation",),
        shows_s=15.0,
    ),
    Scenario(
        name="hogwild-not-shared",
        title="train copies of a model whose share_memory() was forgotten",
        neighbour="shares the model",
        expected=("hogwild-not-shared",),
        layer="hook",
        shows_s=25,  # the first step of an optimizer imports half of torch
    ),
    Scenario(
        name="iterable-duplicates",
        title="iterate over a stream in several workers that each read all of it",
        neighbour="each worker takes its part of the stream",
        expected=("iterable-duplicates",),
        also=("loader-starvation",),
        layer="hook",
    ),
    Scenario(
        name="gradients-not-reduced",
        title="compute the loss from the module inside of DistributedDataParallel",
        neighbour="compute it from what the wrapped model returns",
        expected=("gradients-not-reduced",),
        layer="hook",
    ),
    Scenario(
        name="ranks-decide-alone",
        title="each rank lowers its learning rate by a loss of its own",
        neighbour="the loss is averaged over the ranks first",
        expected=("ranks-decide-alone",),
        layer="stacks",
    ),
    Scenario(
        name="checkpoint-many-writers",
        title="save the checkpoint in all ranks to the same file",
        neighbour="rank 0 saves it, and the others wait",
        expected=("checkpoint-many-writers",),
        layer="stacks",
    ),
)

# CUDA.
GPU = (
    Scenario(
        name="cuda-in-forked-child",
        title="use CUDA in a child forked after CUDA was initialised",
        neighbour="makes the samples on the CPU, and moves the batch in main",
        expected=("cuda-in-forked-child",),
        layer="hook",
        damage_s=6,
        says="cannot load: ",
        needs=("gpu",),
    ),
    Scenario(
        name="cuda-ipc-producer-exit",
        title="exit a producer while others use its CUDA tensors",
        neighbour="the producer runs until its tensors are not used any more",
        expected=("cuda-ipc-producer-exit",),
        layer="hook",
        damage_s=6,
        says="the producer ended",
        needs=("gpu",),
    ),
    Scenario(
        name="cuda-ipc-limbo",
        title="never release received CUDA tensors",
        neighbour="keeps a number computed from each instead",
        expected=("cuda-ipc-limbo",),
        also=("cuda-ipc-counter-files-and-events",),
        layer="hook",
        shows_s=45,
        needs=("gpu",),
    ),
    Scenario(
        name="cuda-ipc-counter-files-and-events",
        title="keep more received CUDA tensors than there are events",
        neighbour="keeps copies of them",
        expected=("cuda-ipc-counter-files-and-events",),
        also=("cuda-ipc-limbo",),
        layer="hook",
        needs=("gpu",),
    ),
    Scenario(
        name="cuda-contexts-everywhere",
        title="make a CUDA context in every worker",
        neighbour="makes the samples on the CPU, and moves the batch in main",
        expected=("cuda-contexts-everywhere",),
        needs=("gpu",),
    ),
    Scenario(
        name="cuda-launch-blocking",
        title="train with a debugging setting that makes every CUDA call wait",
        neighbour="without the setting",
        expected=("cuda-launch-blocking",),
        needs=("gpu",),
    ),
    Scenario(
        name="cuda-ipc-allocator-mismatch",
        title="share CUDA tensors whose allocator has memory that cannot be exported",
        neighbour="uses torch's own allocator",
        expected=("cuda-ipc-allocator-mismatch",),
        layer="hook",
        damage_s=4,
        says="cannot send: ",
        needs=("gpu",),
    ),
)

# torch.distributed and its launchers.
DISTRIBUTED = (
    Scenario(
        name="rank-stuck-in-collective",
        title="keep all ranks waiting for one that writes a checkpoint",
        neighbour="the checkpoint takes two seconds",
        expected=("rank-stuck-in-collective",),
        layer="stacks",
        shows_s=20,
    ),
    Scenario(
        name="collective-mismatch",
        title="call different collectives on different ranks",
        neighbour="all ranks call the same one",
        expected=("collective-mismatch",),
        also=("rank-stuck-in-collective",),
        layer="stacks",
        shows_s=20,
    ),
    Scenario(
        name="torchrun-root-cause-misread",
        title="lose one rank under torchrun, which then ends the others",
        neighbour="no rank is killed",
        expected=("torchrun-root-cause-misread",),
        also=("worker-exited-unexpectedly",),
        damage_s=7,
        ends="in ChildFailedError",
    ),
    Scenario(
        name="torchrun-agent-killed-orphans",
        title="kill torchrun, whose ranks then continue",
        neighbour="stops torchrun with SIGTERM",
        expected=("torchrun-agent-killed-orphans",),
        also=("orphaned-workers", "worker-exited-unexpectedly"),
        damage_s=6,
    ),
    Scenario(
        name="torchrun-sighup",
        title="run torchrun in a terminal, where closing the window ends the training",
        neighbour="torchrun does not handle SIGHUP, under nohup",
        expected=("torchrun-sighup",),
    ),
    Scenario(
        name="store-port-in-use",
        title="start a job on a port where an earlier one still listens",
        neighbour="uses a port that is free",
        expected=("store-port-in-use",),
    ),
    Scenario(
        name="nccl-shm-enospc",
        title="start NCCL where /dev/shm is full",
        expected=("nccl-shm-enospc",),
        not_runnable="needs an NVIDIA GPU and NCCL",
    ),
    Scenario(
        name="elastic-agent-wedged",
        title="wait for a rank that cannot be killed",
        expected=("elastic-agent-wedged",),
        not_runnable="needs a device or a file system that holds a process in state D",
    ),
    Scenario(
        name="collective-checks",
        title="leave a setting on that checks each collective by two more",
        neighbour="the setting is off",
        expected=("collective-checks",),
        layer="proc",
    ),
)

SCENARIOS = (
    *HEALTHY,
    *TRANSPORT,
    *STARTING,
    *HANGS,
    *EXITS,
    *MEMORY,
    *THROUGHPUT,
    *RESULTS,
    *GPU,
    *DISTRIBUTED,
)
"""All of them, healthy ones first, including those without a program."""

"""Part A: how tensors get from one process to another."""

from __future__ import annotations

from mpwatch.demo.scenario import Scenario

SCENARIOS = (
    Scenario(
        name="fd-exhaustion-receiver",
        title="collect the labels of every batch until file descriptors run out",
        expected=("fd-exhaustion-receiver",),
        damage_s=40,
        ends="in `Too many open files`",
    ),
    Scenario(
        name="fd-exhaustion-producer",
        title="fill a queue faster than it is read, until the producer has no descriptor left",
        expected=("fd-exhaustion-producer",),
        damage_s=35,
    ),
    Scenario(
        name="max-map-count",
        title="share a data set tensor by tensor until no mapping is left",
        expected=("max-map-count",),
        damage_s=21,
        ends="in `Cannot allocate memory (12)`",
        needs=("mount",),
        memory_mib=300,
    ),
    Scenario(
        name="shm-full-enospc",
        title="keep every batch until a /dev/shm of 48 MiB is full",
        expected=("shm-full-enospc",),
        damage_s=25,
        ends="in `unable to allocate shared memory`",
        needs=("mount",),
        memory_mib=60,
    ),
    Scenario(
        name="shm-full-sigbus",
        title="touch shared memory that was promised and is not there",
        expected=("shm-full-sigbus",),
        also=("shm-full-enospc", "sigchld-raises-anywhere", "loader-starvation"),
        damage_s=11,
        ends="in `killed by signal: Bus error`",
        needs=("mount",),
    ),
    Scenario(
        name="semlock-enospc",
        title="start a DataLoader where /dev/shm has no room for a semaphore",
        expected=("semlock-enospc",),
        also=("shm-full-enospc",),
        needs=("mount",),
    ),
    Scenario(
        name="file-system-strategy-leak",
        title="train where the segments of a killed job stayed behind",
        expected=("file-system-strategy-leak",),
        is_alone=True,
    ),
    Scenario(
        name="shm-manager-failure",
        title="share under the file_system strategy where its cleaner cannot start",
        expected=("shm-manager-failure",),
        layer="hook",
    ),
    Scenario(
        name="producer-exits-before-get",
        title="receive a tensor from a process that has ended",
        expected=("producer-exits-before-get",),
        damage_s=15,
        ends="in FileNotFoundError",
    ),
    Scenario(
        name="raw-fork-inherits-sharer",
        title="send a tensor from a process made with os.fork",
        expected=("raw-fork-inherits-sharer",),
        layer="hook",
    ),
    Scenario(
        name="tmpdir-socket-path-too-long",
        title="work in a temporary folder whose path is too long for a socket",
        expected=("tmpdir-socket-path-too-long",),
        also=("feeder-thread-drops-batch",),
    ),
    Scenario(
        name="sharedcache-race",
        title="change torch's table of segments from several threads",
        expected=("sharedcache-race",),
        not_runnable="mended in torch 1.9; told from the version",
    ),
    Scenario(
        name="sharedcache-lock-reentry",
        title="receive a tensor in a signal handler while receiving another",
        expected=("sharedcache-lock-reentry",),
        layer="stacks",
    ),
    Scenario(
        name="sharedcache-growth",
        title="hold thousands of tensors at once, then let them go",
        expected=("sharedcache-growth",),
        layer="hook",
    ),
    Scenario(
        name="queue-aliasing-inplace-write",
        title="go on writing to a tensor that was put on a queue",
        expected=("queue-aliasing-inplace-write",),
        layer="hook",
    ),
    Scenario(
        name="share-memory-dangling-numpy",
        title="keep a numpy view of a tensor that moves to shared memory",
        expected=("share-memory-dangling-numpy",),
        layer="hook",
    ),
    Scenario(
        name="unreused-buffers-copied",
        title="send a fresh tensor each time instead of a buffer sent back",
        expected=("unreused-buffers-copied",),
        is_alone=True,
    ),
    Scenario(
        name="spawn-temporary-tensor-fd",
        title="send a spawned process a tensor that exists only while it is pickled",
        expected=("spawn-temporary-tensor-fd",),
        also=("worker-exited-unexpectedly",),
        layer="hook",
    ),
    Scenario(
        name="forkserver-too-many-fds",
        title="start a worker through the fork server with 300 tensors",
        expected=("forkserver-too-many-fds",),
        layer="hook",
    ),
    Scenario(
        name="fds-to-keep-duplicate",
        title="send two views of one storage to a spawned process",
        expected=("fds-to-keep-duplicate",),
        not_runnable="mended in torch; told from the version",
    ),
)

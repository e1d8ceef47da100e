"""Error messages of torch, CPython and libraries that prove or suggest a failure, as one table.

A note of the hook is matched once, when it arrives: the fold writes the tags of the messages it
contains into its log entry. To recognise one more message, add a row to `KNOWN_ERRORS`, and an
example to its test; a rule that needs more than the message to decide adds a row to `SYMPTOMS`.
What a rule asks of an error that it has found in another way is a row of `REASONS`.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from msgspec import Struct

from mpwatch.model.findings import Severity

OWN_KINDS = frozenset(
    ("started", "ended", "orphaned", "finding", "hook", "hook-problem", "ring-lost")
)
"""Entries that the observer wrote, or the hook about itself: never an error of the job."""


class Message(Struct, frozen=True):
    """How a message is recognised: all of these texts occur in the words or details of a note."""

    texts: tuple[str, ...]
    kind: str | None = None
    """Kind of the note; any if `None`."""
    other_kinds: frozenset[str] = frozenset()
    """Kinds of notes in which the same words mean something else."""


def message(*texts: str, kind: str | None = None, not_in: tuple[str, ...] = ()) -> Message:
    """A message that contains all of these texts."""
    return Message(texts, kind, frozenset(not_in))


class KnownError(Struct, frozen=True):
    """A failure that is proven by its message alone."""

    rule: str
    messages: tuple[Message, ...]
    """Any of them."""
    summary: str
    """What happened, to follow the name of the process."""
    cause: str
    advice: str
    """A fix and its trade-off."""
    severity: Severity = Severity.CRITICAL


KNOWN_ERRORS: tuple[KnownError, ...] = (
    KnownError(
        rule="batch-of-different-shapes",
        messages=(
            message("stack expects each tensor to be equal size", "collate"),
            message("Trying to resize storage that is not resizable", "collate"),
            message("each element in list of batch should be of equal size"),
        ),
        summary="cannot make a batch: its samples have different shapes",
        cause=(
            "The DataLoader's default collate function stacks the samples of a batch, which works "
            "for tensors of one shape only. A worker stacks them in shared memory of a fixed size, "
            "so the error there may be about a storage that is not resizable and name no shape."
        ),
        advice=(
            "Make the samples of a batch one shape: crop or resize them in the dataset, or pad "
            "them in a collate_fn of your own (torch.nn.utils.rnn.pad_sequence), which costs the "
            "memory of the padding. With num_workers=0 the error names the shapes."
        ),
    ),
    KnownError(
        rule="batch-of-unknown-type",
        messages=(message("default_collate: batch must contain tensors"),),
        summary="cannot make a batch: a sample has a type that cannot be stacked",
        cause=(
            "The DataLoader's default collate function accepts tensors, arrays, numbers, strings, "
            "dicts and lists. The message ends with the type that it found: NoneType is a dataset "
            "that returns None for a sample it cannot read, others are objects such as images."
        ),
        advice=(
            "Return a tensor for each sample. For samples that may be missing, drop them in a "
            "collate_fn of your own (batches then differ in size), or read another sample."
        ),
    ),
    KnownError(
        rule="context-already-set",
        messages=(message("context has already been set"),),
        summary="sets the start method a second time",
        cause=(
            "The default start method can be set once per process. Earlier code, such as a library "
            "or this module imported a second time, has already set it."
        ),
        advice=(
            'Use mp.get_context("spawn"), which may be called any number of times, and take '
            "Process, Queue and Lock from it. set_start_method(..., force=True) works too, and "
            "silently overrides the earlier choice."
        ),
        severity=Severity.WARNING,
    ),
    KnownError(
        rule="cuda-in-forked-child",
        messages=(
            message("Cannot re-initialize CUDA in forked subprocess"),
            message("CUDA error: initialization error"),
        ),
        summary="uses CUDA after a fork from a process that had initialised it",
        cause=(
            "The state of the CUDA driver cannot be used after a fork. The parent may have "
            "initialised CUDA unintentionally: a torch.cuda call, a checkpoint loaded onto the "
            "GPU, a dataset that holds CUDA tensors."
        ),
        advice=(
            "Use only the CPU in the child and move tensors to the GPU in the parent. Or start the "
            "child by spawn or forkserver (slower to start, all arguments are pickled), or before "
            "CUDA is first used."
        ),
    ),
    KnownError(
        rule="cuda-ipc-allocator-mismatch",
        messages=(
            message("pidfd_getfd"),
            message("invalid device pointer", "_share_cuda_"),
            message("does not yet support shareIpcHandle"),
        ),
        summary="cannot share a CUDA tensor: its allocator's memory cannot be exported",
        cause=(
            "Memory of expandable segments is exported as descriptors, which the receiver fetches "
            "from the running producer (pidfd_getfd); that needs ptrace permission. Memory of a "
            "custom allocator, or of CUDA's asynchronous one (backend:cudaMallocAsync), cannot be "
            "shared at all."
        ),
        advice=(
            "Use torch's own allocator in processes that share CUDA tensors: without "
            "backend:cudaMallocAsync in PYTORCH_CUDA_ALLOC_CONF, and with "
            "expandable_segments:False; fragmentation then costs more memory."
        ),
    ),
    KnownError(
        rule="cuda-ipc-producer-exit",
        messages=(
            message(kind="cuda-lent"),
            message("Producer process has been terminated before all shared CUDA tensors released"),
        ),
        summary="exits while other processes still use CUDA tensors it sent",
        cause=(
            "Shared CUDA memory belongs to the process that made it; receivers hold only a "
            "mapping. When the producer exits, they read freed memory or zeros."
        ),
        advice=(
            "Keep the producer alive until the consumers report that they have finished, and "
            "delete received tensors early. Or allocate in the consumer and let the producer write "
            "there."
        ),
    ),
    KnownError(
        rule="fds-to-keep-duplicate",
        messages=(message("bad value(s) in fds_to_keep"),),
        summary="cannot spawn: one tensor storage appears twice among the child's arguments",
        cause=(
            "In old versions of torch two views of one storage listed its descriptor twice, which "
            "the spawning code of CPython refuses."
        ),
        advice="Upgrade torch, or pass the base tensor once and make the views in the child.",
    ),
    KnownError(
        rule="hogwild-not-shared",
        messages=(message(kind="parameters-not-shared"),),
        summary=(
            "trains parameters that are not in shared memory: other processes do not see the "
            "updates"
        ),
        cause=(
            "share_memory() was not called before the processes were started, or sharing was "
            "undone in the child by rebinding .data, a change of type or device, or "
            "load_state_dict(assign=True). Optimizer state is made in each process unless it is "
            "shared explicitly."
        ),
        advice=(
            "Call model.share_memory() before starting the processes and update in place only. "
            "Gradients may stay local; share the optimizer's state if it is meant to be common."
        ),
    ),
    KnownError(
        rule="inherited-iterator-del",
        messages=(
            message(kind="foreign-shutdown"),
            message("can only test a child process"),
            message("_workers_done_event state does not match shutdown flag"),
        ),
        summary=(
            "dropped a DataLoader iterator it inherited by fork, which ends the workers of its "
            "parent"
        ),
        cause=(
            "A process forked in the middle of an epoch inherits the iterator. When it drops "
            "it, the iterator's __del__ runs there and tells the workers, which are shared, to "
            'exit. The message "can only test a child process" is not harmless.'
        ),
        advice=(
            "Do not fork processes in the middle of an epoch: spawn them, or start them before "
            "iterating. A loader kept alive with persistent_workers avoids the __del__ in most "
            "programs."
        ),
    ),
    KnownError(
        rule="nccl-shm-enospc",
        messages=(message("Error while creating shared memory segment /dev/shm/nccl-"),),
        summary="cannot create an NCCL buffer in /dev/shm",
        cause=(
            "NCCL needs about 10 MB of /dev/shm for each pair of channels. The usual reason for "
            "this error is that too little of it is free; segments of other processes and files "
            "that jobs left behind use it as well."
        ),
        advice=(
            "Check the free space (df /dev/shm). Make it larger (docker --shm-size), or remove "
            "nccl-* files of jobs that have exited. NCCL_SHM_DISABLE=1 avoids /dev/shm, but is "
            "slower."
        ),
    ),
    KnownError(
        rule="nested-daemonic",
        messages=(message("daemonic processes are not allowed to have children"),),
        summary="is daemonic and may not start processes of its own",
        cause=(
            "Workers of a Pool and of a DataLoader are daemonic. multiprocessing does not let a "
            "daemonic process start children, because they would be orphaned when it is killed."
        ),
        advice=(
            "Do not start processes in the worker (num_workers=0 for a DataLoader used there). Or "
            "run the worker itself in a non-daemonic Process or a "
            "concurrent.futures.ProcessPoolExecutor. Clearing the daemon flag works too, and "
            "leaves orphans when the worker is killed."
        ),
    ),
    KnownError(
        rule="queue-aliasing-inplace-write",
        messages=(message(kind="written-after-put"),),
        summary="writes to a tensor that it has put on a queue: the receiver sees the change",
        cause=(
            "put() does not copy: sender and receiver use the same memory. A later write changes "
            "what the receiver reads; a write during the transfer may arrive in part. If the "
            "tensor was not in shared memory before, a write while the queue's feeder thread moves "
            "it there goes to freed memory, and may crash the process."
        ),
        advice=(
            "Put a copy, queue.put(tensor.clone()), which costs that copy; or use a ring of "
            "shared buffers and write only to buffers that the receiver has returned."
        ),
        severity=Severity.WARNING,
    ),
    KnownError(
        rule="semlock-cross-context",
        messages=(
            message("A SemLock created in a fork context"),
            message("should only be shared between processes through inheritance"),
        ),
        summary="passes a lock or queue to a process in which it cannot work",
        cause=(
            "A lock made for fork has no name by which a spawned process could open it. Locks and "
            "queues cannot be sent through a queue at all: they can only be passed as arguments of "
            "a new process."
        ),
        advice=(
            "Take Process, Queue and Lock from one and the same context object, pass them as "
            "arguments of Process, or use a Manager, which costs a round trip for each call."
        ),
    ),
    KnownError(
        rule="share-memory-dangling-numpy",
        messages=(message(kind="dangling-view"),),
        summary=(
            "moved a tensor to shared memory while a numpy array still refers to its old memory"
        ),
        cause=(
            "Sharing gives a tensor a new buffer and frees the old one. Arrays made by .numpy() "
            "or from_numpy before that point to freed memory: garbage, or a crash much later."
        ),
        advice=(
            "Share first and take numpy views afterwards; keep either the tensor or the array in "
            "a dataset, not both."
        ),
    ),
    KnownError(
        rule="sharedcache-race",
        messages=(message("dictionary changed size during iteration", "free_dead_references"),),
        summary="failed to receive a tensor: two threads changed torch's SharedCache at once",
        cause=(
            "In torch before 1.9, and in free-threaded builds, a thread that receives a tensor may "
            "change SharedCache while another thread iterates over it."
        ),
        advice="Upgrade torch (fixed in 1.9), or receive tensors in one thread only.",
    ),
    KnownError(
        rule="shm-manager-failure",
        messages=(
            message("error executing torch_shm_manager"),
            message("no response from torch_shm_manager"),
            message("could not generate a random directory for manager socket"),
            message("Shared memory manager connection has timed out"),
        ),
        summary="cannot start torch_shm_manager and so cannot share tensors",
        cause=(
            "The first tensor shared under the strategy file_system starts the program "
            "torch_shm_manager of the torch package. Possible reasons for the failure: no execute "
            "permission, a file system mounted noexec, a missing library, or a TMPDIR that is full "
            "or not writable."
        ),
        advice=(
            "Make the binary executable and TMPDIR writable (mpwatch doctor shows which), or use "
            "the strategy file_descriptor, which needs no helper, and one descriptor per tensor."
        ),
    ),
    KnownError(
        rule="spawn-join-false-lost-semaphores",
        messages=(
            message("__setstate__", "FileNotFoundError", "synchronize.py"),
            message("_rebuild", "FileNotFoundError", "synchronize.py"),
            message("No such file or directory", "SemLock"),
        ),
        summary="could not open a lock or queue that its parent passed to it",
        cause=(
            "A spawned child opens its locks and queues by name once it has started. The name no "
            "longer exists: the parent had deleted the object by then, or had exited."
        ),
        advice=(
            "Keep a reference to the queue or lock in the parent until the child has been joined."
        ),
    ),
    KnownError(
        rule="spawn-temporary-tensor-fd",
        messages=(
            message("unable to resize file <filename not specified>"),
            message("unable to resize file", "Invalid argument (22)"),
        ),
        summary="received a descriptor number that refers to a different file here",
        cause=(
            "Under spawn and forkserver a tensor's descriptor is recorded by number without "
            "keeping the tensor. One that exists only during pickling (made in __getstate__ or "
            "__reduce__, or the state of a torch.Generator) is freed before the child starts, and "
            "its number is closed or belongs to another file: at best this error, at worst "
            "foreign data."
        ),
        advice=(
            "Build packed tensors in __init__ and keep them on the object, pass a seed instead of "
            "a Generator, or use the strategy file_system, which passes names instead of numbers "
            "and can leak files on a kill."
        ),
    ),
)
"""Sorted by rule. Findings of these rules need no more than the message."""

SYMPTOMS: Mapping[str, tuple[Message, ...]] = {
    "cuda-ipc-limbo": (message("Producer process tried to deallocate over 1000 memory blocks"),),
    "fd-exhaustion-receiver": (message("received 0 items of ancdata"),),
    "feeder-thread-drops-batch": (message(kind="lost-item"),),
    "forkserver-too-many-fds": (message("too many fds"),),
    "iterable-duplicates": (message("Length of IterableDataset", "samples have been fetched"),),
    "loader-worker-exited": (message("exited unexpectedly"),),
    "main-not-importable": (
        message("Can't get attribute", "__main__"),
        message("Can't get attribute", "__mp_main__"),
        message("No such file or directory", "<stdin>"),
    ),
    "max-map-count": (message("unable to mmap", "Cannot allocate memory (12)"),),
    "no-main-guard": (message("before the current process has finished its bootstrapping phase"),),
    "pids-limit": (
        message("can't start new thread"),
        message("BlockingIOError", "fork"),
        message("pthread_create failed"),
    ),
    "pin-memory-thread-death": (
        message("Pin memory thread exited unexpectedly"),
        message("_pin_memory_loop", kind="thread-died"),
    ),
    "producer-exits-before-get": (
        message("FileNotFoundError", kind="receive-failed"),
        message("ConnectionRefusedError", kind="receive-failed"),
        message("ConnectionRefusedError", "resource_sharer.py"),
        message("FileNotFoundError", "resource_sharer.py"),
    ),
    "python314-forkserver-default": (
        # What a queue's feeder thread could not pickle fails under fork as well.
        message("Can't pickle", not_in=("lost-item",)),
        message("cannot pickle", not_in=("lost-item",)),
        message("Can't get attribute"),
        message("too many fds"),
        message("before the current process has finished its bootstrapping phase"),
        message(kind="unpicklable"),
    ),
    "semlock-enospc": (
        message("No space left on device", "SemLock"),
        message("No space left on device", "synchronize.py"),
        message("Permission denied", "synchronize.py"),
        message("Read-only file system", "synchronize.py"),
    ),
    "sender-refused": (message("KeyError", "_serve"),),
    "sender-did-not-answer": (message("EOFError", kind="receive-failed"),),
    "sender-without-descriptors": (
        message("Too many open files"),
        message("received 0 items of ancdata"),
    ),
    "shared-memory-tracker-unlink": (message("FileNotFoundError", "psm_"),),
    "shm-full-enospc": (
        message("unable to allocate shared memory", "No space left on device"),
        message("unable to open shared memory object", "No space left on device"),
        message("unable to mmap", "torch_", "No space left on device"),
    ),
    "sigchld-raises-anywhere": (message("signal_handling.py", "DataLoader worker"),),
    "spawn-unpicklable-object": tuple(
        # What a queue's feeder thread could not pickle was no argument of a process.
        message(*texts, kind=kind, not_in=("lost-item",))
        for kind, texts in (
            ("unpicklable", ()),
            (None, ("Can't pickle local object",)),
            (None, ("Can't get local object",)),
            (None, ("it's not the same object as",)),
            (None, ("h5py objects cannot be pickled",)),
            (None, ("Cowardly refusing to serialize non-leaf tensor",)),
            (None, ("TypeError", "cannot pickle ")),
        )
    ),
    "store-port-in-use": (
        message("failed to listen on any local network address"),
        message("EADDRINUSE"),
        message("Address already in use"),
    ),
    "tmpdir-socket-path-too-long": (message("AF_UNIX path too long"),),
    "torchrun-sighup": (message("got signal: 1"), message("SignalException", "signal: 1")),
}
"""Messages by tag, for rules that need more than the message to decide."""

REASONS: Mapping[str, tuple[Message, ...]] = {
    "cannot-pickle": (message("pickle"),),
    "file-cut-short": (
        message("mmap length is greater than file size"),  # numpy 1.26 to 2.3
        message("Ran out of input"),  # pickle of CPython 3.10 to 3.14
        message("pickle data was truncated"),
        message("Compressed file ended before the end-of-stream"),  # gzip, bz2, lzma
        message("not a zip file"),  # zipfile
        message("failed finding central directory"),  # torch.load
        message("image file is truncated"),  # Pillow
        message("truncated file"),  # h5py
    ),
    "name-not-found": (message("Can't get attribute"),),
    "no-descriptor-left": (message("Too many open files"),),
    "no-space-left": (message("No space left on device"),),
    "not-permitted": (message("Permission denied"),),
    "peer-lost": (  # gloo, tcp/pair.cc, torch 2.1 to 2.13
        message("Connection closed by peer"),
        message("Connection reset by peer"),
    ),
    "read-only": (message("Read-only file system"),),
    "refused": (message("ConnectionRefusedError"),),
    "socket-path-too-long": (message("AF_UNIX path too long"),),
    "starts-while-importing": (
        message("before the current process has finished its bootstrapping phase"),
    ),
    "timed-out": (message("timeout"), message("Timeout"), message("TIMEOUT")),
    "too-many-descriptors": (message("too many fds"),),
}
"""What an error that a rule has found already says about its reason. No tags: alone, most of these
texts name no failure."""


_MESSAGES: tuple[tuple[str, tuple[Message, ...]], ...] = (
    *((known.rule, known.messages) for known in KNOWN_ERRORS),
    *SYMPTOMS.items(),
)


def tags_of(kind: str, words: str, details: Mapping[str, object]) -> tuple[str, ...]:
    """The tags of the messages that a note contains; nearly all notes have none.

    Args:
        kind: Kind of the note.
        words: The note as one line.
        details: All fields of the note.
    """
    if kind in OWN_KINDS:
        return ()
    whole = "\n".join((words, *strings_in(details)))
    return tuple(
        tag
        for tag, messages in _MESSAGES
        if any(is_in(message, kind, whole) for message in messages)
    )


def is_in(message: Message, kind: str, whole: str) -> bool:
    """Whether a note of this kind contains a message."""
    if kind in message.other_kinds or (message.kind is not None and kind != message.kind):
        return False
    return all(text in whole for text in message.texts)


def strings_in(value: object, depth: int = 0) -> Iterator[str]:
    """Every text inside a value from JSON, down to four levels."""
    if isinstance(value, str):
        yield value
    elif depth < 4 and isinstance(value, Mapping):
        for each in value.values():
            yield from strings_in(each, depth + 1)
    elif depth < 4 and isinstance(value, (list, tuple)):
        for each in value:
            yield from strings_in(each, depth + 1)

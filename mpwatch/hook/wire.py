"""The protocol between the hook and its observers: records, frames, names of files.

Standard library only and importable on its own: it is loaded into the programs, and it
is the one module of the hook that the rest of mpwatch may import.

A ring file is a header of `HEADER_BYTES` followed by `slots` records of 64 bytes. Record number n
lies in slot n modulo `slots`; its first field holds n + 1, so a slot never written reads as zero
and a slot that was overwritten reads as a higher number than expected. Fields are packed in
one `struct.pack_into`. A torn record is possible in principle; its sequence number does not match
the slot, and it is counted as lost.

A stream is a sequence of frames: four bytes of length, one byte of type, the payload. Frames from
an observer are requests as JSON; frames to it are JSON, except for ring slices, which are raw
records after an eight-byte count of the records lost so far.
"""

from __future__ import annotations

import binascii
import os
import stat
import struct

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping
    from typing import Any

PROTOCOL = 1

# --- records -------------------------------------------------------------------------------------

RECORD = struct.Struct("<QQHHIQQQQQ")
"""sequence + 1, monotonic ns, kind, flags, thread id, duration ns, bytes, key, key2, aux.

The time is that of writing, at the end of the call, which began `duration ns` earlier.
The thread id is the kernel's, in the pid namespace of the process.
"""
RECORD_BYTES = 64
HEADER = struct.Struct("<8sHHIIIQQQ")
"""magic, protocol, header bytes, record bytes, slots, pid, start ticks, wall ns, monotonic ns."""
ORIGIN = struct.Struct("<IQ64s")
"""pid of the parent, its start ticks, name of the process: behind the header, at `ORIGIN_AT`.

Zero: not known, or not a process of the job, as for a program that a shell started. The name
is the one `multiprocessing` gave, UTF-8 and cut; it is empty in a child of a plain `os.fork`.
"""
ORIGIN_AT = 64
COPY = struct.Struct("<QQ")
"""CLOCK_MONOTONIC ns of the last copy, records begun by then: in the header, at `COPY_AT`.

Zero in a ring that the process itself maps; otherwise the file is a copy, which the hook's thread
makes of a ring in memory.
"""
COPY_AT = 144
HEADER_BYTES = 4096
MAGIC = b"mpwatch\x01"
DEFAULT_SLOTS = 2048
"""128 KiB when full, beside about 880 KiB of code and objects in a program of torch: below 1 MiB
(CPython 3.11, bytecode cached; where it cannot be cached, the compiler leaves 800 KiB more, free
for the program's next use). Read ten times a second, it holds 20,000 records a second."""

# Kinds. Numbers are part of the protocol: never reused. 3, 4, 12, 36, 40, 53 and 61 had a meaning
# and were never recorded.
SHARE = 1
"""A storage was shared. bytes; key, key2: inode and device, or hash of the name or handle.

aux: entries of SharedCache afterwards. The name is torch's, with its leading slash.
"""
REBUILD = 2
"""A storage was rebuilt. As SHARE."""
CACHE_SWEEP = 5
"""SharedCache.free_dead_references; aux: entries afterwards; bytes: entries removed."""
QUEUE_PUT = 10
"""key: queue; duration includes time blocked; aux: number of the call in this process, from 1.

Recorded is each call that took 10 ms, the first of a queue, and of the others one in 10 ms and one
`put` in 16. Calls of `Queue`, `JoinableQueue` and `SimpleQueue` are counted separately. A forked
child continues the numbers of its parent.
"""
QUEUE_GET = 11
"""As QUEUE_PUT."""
PROCESS_START = 20
"""key: child's pid; aux: index of the start method: 1 fork, 2 spawn, 3 forkserver."""
PROCESS_JOIN = 21
"""key: child's pid; aux: exit code as multiprocessing has it, plus `EXIT_BASE`; 0 if unknown."""
FORKED = 22
"""os.fork, recorded by the parent; key: child's pid if known; aux: running threads."""
LOADER_NEXT = 30
"""DataLoader __next__ in main; key: loader; duration: time waited; aux: batch index."""
LOADER_PUT_INDEX = 31
"""A task was sent to a worker; key: loader; key2: worker id; aux: batch index."""
LOADER_FETCH = 32
"""A worker fetched; key2: worker id; aux: batch index; duration: fetch time."""
LOADER_START = 33
"""An iterator was made; key: loader; aux: workers."""
LOADER_STOP = 34
LOADER_FETCH_BEGIN = 35
"""A worker began to fetch; in a ring of a dead process, the unfinished call. As LOADER_FETCH."""
CUDA_INIT = 50
CUDA_SHARE = 51
"""As SHARE for a CUDA storage; key: hash of the IPC handle; aux: device."""
CUDA_REBUILD = 52
EXCEPTION = 60
"""An exception passed a wrapper; the text is in a note. aux: kind of the wrapped call."""
KNOWN = 62
"""A storage that this process had sent or received before the hook was attached. As SHARE.

bytes: 0 if it has been freed here; it may still be in a queue.
"""

KIND_NAMES: dict[int, str] = {
    SHARE: "share",
    REBUILD: "rebuild",
    CACHE_SWEEP: "cache sweep",
    QUEUE_PUT: "queue put",
    QUEUE_GET: "queue get",
    PROCESS_START: "process start",
    PROCESS_JOIN: "process join",
    FORKED: "forked",
    LOADER_NEXT: "loader next",
    LOADER_PUT_INDEX: "loader task",
    LOADER_FETCH: "loader fetch",
    LOADER_START: "loader start",
    LOADER_STOP: "loader stop",
    LOADER_FETCH_BEGIN: "loader fetch begins",
    CUDA_INIT: "cuda init",
    CUDA_SHARE: "cuda share",
    CUDA_REBUILD: "cuda rebuild",
    EXCEPTION: "exception",
    KNOWN: "known",
}

EXIT_BASE = 256
"""Added to exit codes, so that they are positive: a child killed by signal 9 has -9."""

# Flags.
FLAG_COPIED = 1
"""SHARE: the storage was not shared before, its bytes were copied into shared memory now."""
FLAG_FILE_SYSTEM = 2
"""SHARE, REBUILD: strategy file_system; key is `name_key` of the segment's name."""
FLAG_RAISED = 4
"""The call ended in an exception."""
FLAG_SPAWNING = 8
"""SHARE: while a child was being started (it inherits the descriptor)."""
FLAG_EMPTY = 16
"""SHARE, REBUILD: a storage of no bytes, sent by value."""
FLAG_CACHED = 32
"""REBUILD: found in SharedCache, nothing was mapped."""

# --- frames --------------------------------------------------------------------------------------

FRAME = struct.Struct("<IB")
"""Length of the payload in bytes, type."""
MAX_FRAME_BYTES = 1 << 20
"""A longer frame is refused and ends the connection."""
HELLO, RECORDS, NOTE, REPLY, GAUGES, GOODBYE = 1, 2, 3, 4, 5, 6
"""HELLO comes first and is a JSON object:

- `protocol`, `pid` and `start_ticks` as the process sees itself, `python` ("3.11.7"), `torch`
  ("2.13.0" or null while it is not loaded), `started_by` (instrument, run, fork, spawn, forkserver,
  attach);
- `birth`: description by the parent, or empty: `parent`, `parent_start_ticks`, `name`, `target`,
  `daemon`, and for a DataLoader worker `worker_id` and `loader` (key of its iterator there);
- `patched`: names of patch points; `missing`: {point: reason}; `waiting`: modules not yet imported;
- `strategy` (file_descriptor, file_system, null), `start_method` (null while undecided);
- `version`: of the hook's sources, see `sources_version`; null while or if that is not known;
  `release`: see `RELEASE`;
- `ring`: path of its file as the process sees it, or null; `ring_inode`: null if the process maps
  that file; otherwise the file is a copy, and the ring is the memfd with this inode number, whose
  descriptor comes with the first byte of this frame (SCM_RIGHTS, unix(7));
- `problems`: sentences why something is missing;
- `since_ns`: when the hook was attached; records and notes are numbered from 0 from then on;
- `own`: {`cpu_ns`: of the hook's threads since it was attached, `records`: written so far,
  `notes`: added so far (those that this observer has yet to get follow, as far as they are kept),
  `wrapper_ns`: cost of a wrapped call over a bare one, measured on attaching, or null, `slots`};
- `stock`: objects older than the hook, null unless it was attached to a running program:
  `took_ms`, `cpu_ms`, `loaders`, `queues` and `storages` (how many were found; of storages those
  in SharedCache), `storage_bytes`, `problem`: why a search was incomplete, or null.

RECORDS is raw, see `LOST`. NOTE is a JSON object with `kind`, `at_ns` (CLOCK_MONOTONIC), `n` (its
number: a missing one was dropped before it could be sent), and:

- `start`: `pid`, `method`, `fds` (descriptors passed to the child, null under fork), `storages`
  (shared while it was pickled) and the fields of a hello's `birth`;
- `exit`: `code`, `how` (`os._exit`, or the type of the exception that left `Process.run`, with
  `frames`): this process ends with another code than 0, or by `SystemExit` or `os._exit`;
- `kill`: `pid`, `signal`, `site` ("guard.py:25"): this process has sent that signal, one that ends
  processes;
- `exception`: `where` (name of the record kind, "main", "run", "resource sharer", "rendezvous",
  "set_start_method", or "task" of a pool's worker, with `count` of those at this line so far, and
  `pool`: "threads" if it is one of this process's own threads),
  `type`, `text`, `frames` (a list of [function, file, line], innermost first), `tid`, and if known
  `first` (the exception at the other end of its chain: `type`, `text`, `frames`, and `is_from`,
  whether each was raised `from` the one before; the others were raised while it was handled),
  `queue`, `loader`, `batch`, `worker_id`, `target`; of a process that could not be started `site`,
  `storages` and `path` to the part that holds them; of a start method that another had been chosen
  before `method` (asked for) and `detail` (which one, and where);
- `thread-died`: `thread` (its name), `type`, `text`, `frames`, `tid`, and `first` as above;
- `lost-item`: a feeder thread could not pickle an item and dropped it: `type`, `text`, `item` (its
  type), `task` (batch index, if it was a batch), `frames`, `tid`;
- `receive-failed`: a descriptor could not be received: `address`, `key`, `type`, `text`, `tid`;
- `foreign-shutdown`: a forked copy of an iterator shuts down the workers of its parent: `owner`
  (pid), `loader`;
- `cuda-lent`: as the gauge, where this process exits and a tensor it has sent is not released;
- `cuda-init`: `frames`, `tid`: CUDA is being initialised by this call;
- `fork`: the state of the process at a fork, once for each change: `threads` (in the kernel,
  without the hook's), `python_threads` (names without the main thread's), `native_threads` (the
  kernel's names without the forking thread's), `torch_threads` (that torch uses for one operator),
  `libraries` (modules that keep threads of their own), `cuda`, `omp_num_threads`,
  `multiprocessing` (false: a plain `os.fork`), `loaders` (live iterators), `sharer_descriptors`
  (not received yet; null if the sharer was never started), `frames`;
- `unpicklable`: `path` to the innermost part that does not pickle (`._args[0].transform`),
  `object`, `type`, `text`;
- `many-storages`: 200 storages and more were shared to start a process: `storages`, `path` to the
  part that holds nearly all, `object`; once for all workers with equal objects;
- `dangling-view`: at the start of a process, a numpy array still used memory that its tensor
  no longer uses since it was shared: `path` (from the process or a variable), `shape`, `dtype`,
  `bytes`, `frames`;
- `parameters-not-shared`: an optimizer stepped parameters that other processes do not see: `what`
  (their names), `parameters`, `model`, `how` ("undone": shared when this process started; "never":
  the model was passed to `processes` that run at the same time), `frames`;
- `generators`: in a DataLoader worker before its first batch: `worker_id`, `dataset`, `hashes`:
  {path: hash of the generator's state};
- `first-samples`: in a worker of an iterable dataset after its second batch: `worker_id`, `loader`,
  `dataset`, `parts`: {path: [hash, values, different values]} of what a batch is made of;
- `written-after-put`: a tensor was written in place after a `put`: `function`, `file`, `line` of
  the `put`, `writes`, `shape`; a sample, one `put` in 16;
- `call-site`: `inode`, `device`, `bytes`, `site`: the line that put a segment into shared memory
  or created a block of `multiprocessing.shared_memory`, as "collate.py:44", or if the stack has no
  line of the program, the function or dataset that fills a DataLoader's batches ("data.py:20
  Noise.__getitem__"); a sample, about one for each MiB shared and at most four a second, not kept
  in the file;
- `hook-problem`: `what`, `text`.

GOODBYE is `{"reason": ..., "left": {POINT: WHY}}`: uninstrument, detach or exit; a connection that
ends without it means that the process was killed. `left` is present if patch points could not be
restored when the hook was detached.
"""
REQUEST = 64
"""From the observer: JSON `{"ask": NAME, "id": N, ...}`; see `ASKS`."""
LOST = struct.Struct("<Q")
"""At the start of a RECORDS payload: records lost since the hook was attached."""

ASKS = ("ping", "stacks", "gauges", "values", "detach")
"""The requests; the reply to each is a REPLY with the request's `id`.

- `ping`: `at_ns`;
- `stacks`: `threads`: [{`tid`: native id or null, `name`, `frames`: [[function, file, line], ...]
  innermost first}], all threads except the hook's;
- `gauges`: only those that exist, each `{"error": reason}` if it cannot be read:
  `own` as in the hello; `strategy`; `shared_cache` {`entries`, `limit`, `expired`};
  `loaders` [{`key`, `workers`, `prefetch`, `persistent`, `pin_memory`, `pids`, `dataset`,
  `batch_size`, `place`: the line that iterates, `batches`, `rcvd`, `outstanding`, `parked`,
  `owner`, `waiting_since_ns`}];
  `worker` {`worker_id`, `loader`, `task`, `since_ns`, `index`, `fetched`}, in DataLoader workers;
  `sites` [{`function`, `file`, `line`, `puts`, `bytes`}]: where tensors are put into queues, most
  bytes first, estimated from one `put` in 16;
  `queues` [{`key`: as in QUEUE_PUT, `maxsize`: null if unbounded, `depth`: null of a SimpleQueue,
  `is_being_read`: whether a reader holds the lock}], fullest first, the queues that this process
  has used;
  `locks` {`known`: how many locks between processes this one has, `held`: the addresses, in this
  process, of the semaphores of those that it has acquired and not released};
  `pools` [{`kind`: Pool or ProcessPoolExecutor, `outstanding`: calls without a result, `oldest`
  of their numbers, `queued`: not yet received by a worker, `pids`}];
  `job` {`job`: number of the call or null, `part` of it, `function`, `since_ns`, `done`}, in the
  workers of a pool;
  `sharer` {`outstanding`: descriptors not received yet, `issued`, `address`};
  `cuda` {`allocated`, `reserved`,
  `devices`: [{`index`, `allocated`, `reserved`, `max_allocated`}]}, once CUDA is initialised, and
  only for a request with `also`: ["cuda"], which may block the process if a kernel hangs;
  `cuda_lent` {`sent`, `synchronised`: sends that waited for the stream, `unreleased`: sent and
  held by a receiver, `bytes` of these, `oldest_ns`: for how long}, once a CUDA tensor was sent;
  `collectives` {`groups`: {name: {`size`, `rank` in it, `ranks`: their numbers in the job as text,
  `backend`}}, `states` [{`id`: torch's number of the group in this process, for NCCL after "nccl:"
  and without what follows `unchanged_ns`, `enqueued`,
  `completed`: numbers of its last operations, `unchanged_ns`: for how long no such number has
  changed; after some seconds also of the oldest unfinished collective, else of the newest: `group`
  (its name), `description`, `operation` ("gloo:all_reduce"), `number` in its group, `sizes`,
  `types`, `is_unfinished`, `created_wall_ns`}], `error`: why there are no states, and where there
  are, `models` [{`site`: where DistributedDataParallel wrapped it, `is_forward_run`: ever,
  `is_reducing`: outside of `no_sync`, `has_own_hook` for its gradients, `lasting_ns`: for how long
  it has been found so, `updates`, `collectives`: changes of its first parameter, and collectives of
  all groups, in this time}]}, once a process group was made;
- `values`, of a request with `frames`: [[thread id, file, function, [name, ...]], ...], at most 8
  of at most 16 names (`step`, `self.state.step`): `frames`: [{`frame`: the place in that list,
  `line`, `values`: {name: {`type`: name of its class, `number`: of an int, bool or float, `length`:
  of a container, str or bytes, `has_graph`: of a tensor, or of the last element of a list or tuple
  that is one, whether it carries an autograd graph}}}],
  each of the innermost frame of that function, or, for thread 0, of the global variables of the
  module that was loaded from the file; names that are not there are left out;
- `detach`: `detached`, and then a GOODBYE: the hook uninstruments itself.

Anything else gets `error`.
"""

AS_TEXT = "as text"
"""Inside the hook: members of a reply that are JSON text already, by name."""

# --- names ---------------------------------------------------------------------------------------

SOCKET_SUFFIX = ".sock"
RING_SUFFIX = ".ring"
NOTES_SUFFIX = ".notes"
CHECK_SUFFIX = ".check"
"""A link on disks, see `transport.runtime_dir`."""
FILE_SUFFIXES = (SOCKET_SUFFIX, CHECK_SUFFIX, RING_SUFFIX, NOTES_SUFFIX)
"""Of all files of a process in the runtime directory."""
THREAD_NAME = b"mpwatch-hook"
"""The name of the hook's thread for the kernel, as `top -H` shows it; at most 15 bytes."""

MARK = b"the hook of mpwatch is loaded"
MARK_PAGES = 13
"""Anonymous shared memory of this size that begins with `MARK`, in every process with a hook.

A forked child inherits it without a call, an `exec` and a detach end it. So it is all that shows a
hook from outside before the child's first record; /proc/PID/maps calls it `/dev/zero (deleted)`.
"""


def stem(pid: int, start_ticks: int) -> str:
    """Name without suffix of the files of one process; `pid` as that process sees itself."""
    return f"{pid}-{start_ticks}"


def runtime_candidates(uid: int, xdg_runtime_dir: str | None) -> tuple[str, ...]:
    """Directories where hooks of a user put their files, in order of preference.

    A relative XDG_RUNTIME_DIR is ignored, as its specification wants: it would lead an observer
    with another working directory elsewhere.
    """
    fallback = f"/tmp/mpwatch-{uid}"
    is_absolute = xdg_runtime_dir is not None and xdg_runtime_dir.startswith("/")
    return (f"{xdg_runtime_dir}/mpwatch", fallback) if is_absolute else (fallback,)


def runtime_refusal(path: str, found: os.stat_result | None, uid: int) -> str | None:
    """Why hooks of a user do not use a directory, to follow its path; `None` if they do.

    Args:
        path: As the hook has it.
        found: Its own status, not that of what a link leads to; `None` of one to be made.
        uid: The user, as in `found`.
    """
    if len(os.fsencode(path)) + _LONGEST_NAME > _SUN_PATH:
        return "is too long for the path of a socket"
    if found is None:
        return None
    if stat.S_ISLNK(found.st_mode):
        return "is a symbolic link"
    if not stat.S_ISDIR(found.st_mode):
        return "is not a directory"
    if found.st_uid != uid:
        return f"belongs to user {found.st_uid}"
    if found.st_mode & 0o077:  # not mended: `chmod` would follow a link put there meanwhile
        return "is open to other users"
    return None


_SUN_PATH = 107
"""Bytes of a socket's path on Linux, the final zero aside."""
_LONGEST_NAME = len("/4194304-999999999999.sock")  # three hundred years of ticks

RELEASE = "0.2.0"
"""`mpwatch.__version__` of the installation that the hook is from: a hook that was loaded by path
cannot import it."""


def sources_version(directory: str) -> str:
    """The version of the hook in a directory: a checksum over its modules, by name.

    Raises:
        OSError: It cannot be read.
    """
    value = 0
    for folder, folders, names in os.walk(directory):
        folders[:] = sorted(name for name in folders if name != "__pycache__")
        for name in sorted(names):
            if name.endswith(".py"):
                with open(os.path.join(folder, name), "rb") as file:
                    value = binascii.crc32(file.read(), binascii.crc32(name.encode(), value))
    return f"{value:08x}"


def name_key(name: bytes) -> int:
    """A 64-bit number for a segment's name or a CUDA handle, the same in every process (FNV-1a).

    `hash()` is not usable: it is salted per process.
    """
    value = 0xCBF29CE484222325
    for byte in name:
        value = ((value ^ byte) * 0x100000001B3) & 0xFFFFFFFFFFFFFFFF
    return value


def pack_frame(kind: int, payload: bytes) -> bytes:
    """One frame, ready to send.

    Raises:
        ValueError: The payload is longer than `MAX_FRAME_BYTES`.
    """
    if len(payload) > MAX_FRAME_BYTES:
        raise ValueError(f"a frame of {len(payload)} bytes is longer than {MAX_FRAME_BYTES}")
    return FRAME.pack(len(payload), kind) + payload


# --- consent -------------------------------------------------------------------------------------

DISABLING = ("MPWATCH_DISABLE", "PYTHON_DISABLE_REMOTE_DEBUG")
"""Environment variables that forbid the hook. The second is CPython's own (PEP 768, since 3.14);
mpwatch honours it on every version, and also where the hook is not injected."""

DISABLING_OPTION = ("disable-remote-debug", "disable_remote_debug")
"""The option `-X` of the interpreter that forbids it as well, and its other spelling."""


def disabled_by(environment: Mapping[str, str]) -> str | None:
    """The variable of an environment that forbids the hook, or `None`.

    An empty value does not forbid it (as CPython reads its own variable), nor does
    `MPWATCH_DISABLE=0`.
    """
    for name in DISABLING:
        value = environment.get(name)
        if value and (name, value) != ("MPWATCH_DISABLE", "0"):
            return name
    return None


SEVERAL_USERS = "the process has the rights of several users or groups"


def has_several_users(os: Any) -> bool:
    """Whether the real, effective and saved user ids of this process differ, or its group ids.

    Then no directory is private to it (set-uid programs, `seteuid`): what one of these users can
    replace there is used with the rights of another. `os` has `getresuid` and `getresgid`.
    """
    return len({*os.getresuid()}) > 1 or len({*os.getresgid()}) > 1

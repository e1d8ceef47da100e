"""The machine code of a pending call, and its block of data.

Each C function of CPython that runs a text on the calling thread lets effects of it reach the
program: `PyRun_SimpleString` on the main thread prints errors, obeys `SystemExit`, fails at the
recursion limit or where an audit hook refuses `exec`, and its result of -1 without an exception
becomes a `SystemError` in the program. The exception of a signal handler that runs between
compilation and the first bytecode reaches the program too, and trace and profile functions see the
frames of the text.

So the pending call is a function of its own, some 300 bytes, which always returns 0:

1. On the main thread, called by the interpreter between two bytecodes with the GIL held, it starts
   a thread by `PyThread_start_new_thread`, gives up the GIL and waits for that thread, 0.1 s at
   most (0.02 s are usual).
2. The new thread takes the GIL by `PyGILState_Ensure`, compiles and runs the text, drops any
   exception by `PyErr_Clear`, and ends.

What this gives: handlers of signals run on the main thread only, which waits in C meanwhile, so
they run after the injection, where they would have run. The recursion depth, the trace function and
the profile function belong to the main thread and not to the new one. Audit hooks and
`sys.monitoring` callbacks do run on the new thread; what they raise fails the injection and is
dropped there. The main thread can neither fork nor exit during the injection, so Python 3.12 has no
second thread to warn of at a fork.

The wait is bounded because the main thread may hold a lock of the program (an RLock of `logging`,
for example) that an audit hook needs on the new thread. After 0.1 s the main thread continues, and
the injection finishes without it.

Sources: Python/ceval_gil.c and ceval.c (`make_pending_calls`), pythonrun.c, pystate.c, thread.c of
CPython 3.10 to 3.14. All functions called are exported by every build with a GIL.
"""

from __future__ import annotations

import os
import struct
from collections.abc import Callable
from dataclasses import dataclass

from mpwatch.attach.outcomes import Refused

MAGIC = b"mpwatch\x02"
BLOCK_BYTES = 1472
"""The same for every block, so that one block can replace another."""
_HEAD = struct.Struct("<8sII")
"""Magic, state of the call, progress of the thread."""
_WORDS = struct.Struct("<16Q")
_FILE_NAME = b"<mpwatch>"
_TEXT_AT = _HEAD.size + _WORDS.size + 16
TEXT_BYTES = BLOCK_BYTES - _TEXT_AT - 1
"""The longest text that fits."""
_STATE_AT = 8
_OWNER_AT = 136

# The state, written by the observer up to READY and then by the main thread.
CANCELLED, READY, WAITING, RETURNED = 0, 1, 2, 3
# The progress, written by the new thread; NO_THREAD by the main thread.
NOT_STARTED, RUNNING, FINISHED, NOT_COMPILED, NO_THREAD = 0, 2, 3, 4, 5

FUNCTIONS = (
    "PyThread_start_new_thread", "PyGILState_Ensure", "PyGILState_Release", "PyEval_SaveThread",
    "PyEval_RestoreThread", "PyThread_allocate_lock", "PyThread_acquire_lock_timed",
    "PyThread_free_lock", "Py_CompileString", "PyEval_EvalCode", "PyDict_New", "Py_DecRef",
    "PyErr_Clear",
)  # fmt: skip
"""In the order of their addresses in the block, after the address of the thread's entry."""


@dataclass(frozen=True, slots=True)
class NativeCode:
    """Position-independent instructions for one processor architecture.

    In the language of C, with `b` the block and `lock` used as a clock that other threads never
    touch:

        int call(struct block *b) {
            if (b->state != READY) return 0;
            b->state = WAITING;
            lock = PyThread_allocate_lock();
            if (!lock) { b->progress = NO_THREAD; b->state = RETURNED; return 0; }
            PyThread_acquire_lock_timed(lock, 0, 0);
            if (PyThread_start_new_thread(thread, b) == -1) b->progress = NO_THREAD;
            else {
                PyThreadState *saved = PyEval_SaveThread();
                for (int i = 500; i && b->progress < FINISHED; i--)
                    PyThread_acquire_lock_timed(lock, 200, 0);      // sleeps 200 us
                PyThread_acquire_lock_timed(lock, 200, 0);          // the thread leaves the kernel
                PyEval_RestoreThread(saved);
            }
            PyThread_free_lock(lock);
            b->state = RETURNED;                                    // last access to the block
            return 0;
        }

        void thread(struct block *b) {
            PyGILState_STATE gil = PyGILState_Ensure();
            b->progress = RUNNING;
            PyObject *code = Py_CompileString(b->text, b->file_name, Py_file_input);
            int progress = code ? FINISHED : NOT_COMPILED;
            if (code && (b->names = PyDict_New())) {
                Py_DecRef(PyEval_EvalCode(code, b->names, b->names));
                Py_DecRef(b->names);
            }
            Py_DecRef(code);
            PyErr_Clear();
            PyGILState_Release(gil);
            b->progress = progress;                                 // last access to the block
        }
    """

    content: bytes
    thread_at: int
    """Where `thread` begins; `call` begins at 0."""


_X86_64 = NativeCode(
    bytes.fromhex(
        "534154415541564883ec084889fb837b08010f8582000000c7430802000000ff53404989c44885c074624c89"
        "e731f631d2ff5348488b7b104889deff53184883f8ff7439ff53304989c541bef4010000837b0c0373124c89"
        "e7bec800000031d2ff534841ffce75e84c89e7bec800000031d2ff53484c89efff5338eb07c7430c05000000"
        "4c89e7ff5350eb07c7430c05000000c743080300000031c04883c408415e415d415c5bc353415441554889fb"
        "ff53204189c4c7430c02000000488dbba0000000488db390000000ba01010000ff53584989c54885c07439ff"
        "5368488983800000004885c0741c4c89ef4889c64889c2ff53604889c7ff5370488bbb80000000ff53704c89"
        "efff537041bd03000000eb0641bd04000000ff53784489e7ff532844896b0c415d415c5bc3"
    ),
    168,
)
_AARCH64 = NativeCode(
    bytes.fromhex(
        "fd7bbda9f35301a9f55b02a9fd030091f30300aa680a40b91f0500714106005448008052680a00b9682240f9"
        "00013fd6f40300aa000500b4010080d202008052682640f900013fd6600a40f9e10313aa680e40f900013fd6"
        "1f0400b100030054681a40f900013fd6f50300aa963e8052680e40b91f0d007102010054e00314aa011980d2"
        "02008052682640f900013fd6d6060071e1feff54e00314aa011980d202008052682640f900013fd6e00315aa"
        "681e40f900013fd603000014a8008052680e00b9e00314aa682a40f900013fd603000014a8008052680e00b9"
        "68008052680a00b900008052f55b42a9f35341a9fd7bc3a8c0035fd6fd7bbda9f35301a9f51300f9fd030091"
        "f30300aa681240f900013fd6f403002a48008052680e00b9608202916142029122208052682e40f900013fd6"
        "f50300aa800200b4683640f900013fd6604200f9600100b4e10300aae20300aae00315aa683240f900013fd6"
        "683a40f900013fd6604240f9683a40f900013fd6e00315aa683a40f900013fd6750080520200001495008052"
        "683e40f900013fd6e003142a681640f900013fd6750e00b9f51340f9f35341a9fd7bc3a8c0035fd6"
    ),
    248,
)


def native_code() -> NativeCode:
    """The instructions for this machine.

    Raises:
        Refused: There are none for its processor.
    """
    name = os.uname().machine
    if name == "x86_64":
        return _X86_64
    if name in ("aarch64", "arm64"):
        return _AARCH64
    raise Refused(f"a pending call cannot be queued on {name} processors")


def block(code_at: int, text: bytes, start_ticks: int, address_of: Callable[[str], int]) -> bytes:
    """A block that is ready to be called.

    Args:
        code_at: Address of the code in the target.
        text: The Python source to run there.
        start_ticks: Start time of the target, to recognise a block inherited by a forked child.
        address_of: Address of an exported function of the target's interpreter.

    Raises:
        Refused: The text is too long, or a function is missing.
    """
    if len(text) > TEXT_BYTES:
        raise Refused("the path of its runtime directory is too long for the injected code")
    functions = [address_of(name) for name in FUNCTIONS]
    words = _WORDS.pack(code_at + native_code().thread_at, *functions, 0, start_ticks)
    head = _HEAD.pack(MAGIC, READY, NOT_STARTED)
    return (head + words + _FILE_NAME.ljust(16, b"\0") + text).ljust(BLOCK_BYTES, b"\0")


@dataclass(frozen=True, slots=True)
class CallState:
    """How far a call has come, as read from its block."""

    state: int
    progress: int
    start_ticks: int

    def is_running(self, start_ticks: int) -> bool:
        """Whether the main thread or the new one still uses the block.

        Neither exists in a forked child that has inherited the block.
        """
        is_entered = (
            self.state == WAITING
            or self.progress == RUNNING  # also where it was entered just before it was cancelled
            or (self.state == RETURNED and self.progress == NOT_STARTED)
        )
        return is_entered and self.start_ticks == start_ticks

    @property
    def failure(self) -> str:
        """Why the text did not run although the call was made; empty if it ran or may yet run."""
        if self.progress == NO_THREAD:
            return "no thread could be started in it (RLIMIT_NPROC, pids.max or a seccomp filter)"
        if self.progress == NOT_COMPILED:
            return "its interpreter refused to compile the injected code (sys.addaudithook)"
        if self.progress == FINISHED and self.state == RETURNED:
            return "the injected code could not read its exchange directory, or was refused to run"
        return ""


def parse(content: bytes) -> CallState | None:
    """The state of a block; `None` if the bytes are not a block."""
    if len(content) < _TEXT_AT or not content.startswith(MAGIC):
        return None
    _, state, progress = _HEAD.unpack_from(content)
    (start_ticks,) = struct.unpack_from("<Q", content, _OWNER_AT)
    return CallState(state, progress, start_ticks)


def store(write: Callable[[int, bytes], None], at: int, content: bytes) -> None:
    """Write a block so that a queued call never finds it ready before it is complete."""
    off, content_off = cancelled_state()
    write(at + off, content_off)
    write(at + _HEAD.size, content[_HEAD.size :])
    write(at, MAGIC + content_off + content[_STATE_AT + 4 : _HEAD.size])
    write(at + _STATE_AT, content[_STATE_AT : _STATE_AT + 4])


def cancelled_state() -> tuple[int, bytes]:
    """Offset and content of the one store that makes a queued call return without doing anything.

    The rest of the block stays: a call that is being entered at this moment still reads it.
    """
    return _STATE_AT, struct.pack("<I", CANCELLED)

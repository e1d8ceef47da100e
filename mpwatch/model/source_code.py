"""Source code of the lines at which a job is: what rules and evidence may say about it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal, NamedTuple, TypeAlias

from msgspec import Struct


class Statement(NamedTuple):
    """One statement, or the header of a compound one, in one clean line."""

    line: int
    text: str


class EndlessLoop(NamedTuple):
    """A loop without a condition (`while True`), and what it takes for it to end or to give.

    As `SourceLine.until` one with a condition, which ends it as well.
    """

    header: Statement
    ends: tuple[Statement, ...] = ()
    """`if` statements in it whose body leaves it, `if keep.any(): break`."""
    is_left_otherwise: bool = False
    """Whether it may be left by another statement, such as a `return` in an `except` block."""
    gives: Statement | None = None
    """Its first `yield`."""
    given_in: Statement | None = None
    """The header of the innermost statement of the loop around that `yield`."""
    exchanges: bool = False
    """Whether it takes, sends or waits for something itself, or makes a step of training."""


class Skip(NamedTuple):
    """A way through a function that takes something and does not give it back."""

    taken: Statement
    """`slot = self.free.get()`; for an error the call or `if` that takes a lock."""
    leaves: Statement
    """`continue`, `return`, `break`, or the header of an `except` block that goes on; for an error
    the statement that may raise it."""
    under: Statement | None
    """The header of the statement around `leaves`."""
    back: Statement
    """The later statement that gives it back."""
    by_error: bool = False
    """Whether only an exception skips `back`."""


class TakenLock(NamedTuple):
    """A statement that takes what is written like a lock: `with self.lock:`, `lock.acquire()`."""

    name: str
    """`self.lock`."""
    statement: Statement
    owner: str = ""
    """The class of the method that contains it; empty for a function of none."""


class Guarded(NamedTuple):
    """A call of a function of the program that only some processes make."""

    condition: Statement
    """`if rank == 0:`."""
    call: Statement
    name: str
    """Of the function."""


class Decider(NamedTuple):
    """A condition or a loop of a function."""

    statement: Statement
    """Its header."""
    last: int
    """The last line of its block, or of the body of an `if`."""
    names: tuple[str, ...]
    """What the condition tests, or the loop goes through: `step`, `self.state.step`."""
    counts: tuple[str, ...] = ()
    """Those of them that the file adds to; of a `for` loop the variable that counts its rounds."""
    leaves: bool = False
    """Whether it is an `if` whose body leaves the function or the loop."""
    starts: tuple[str, ...] = ()
    """Of a `for` over a range the names in its first number, which no round of it sets."""


class AddedTo(NamedTuple):
    """A container or an attribute that statements of the program add to."""

    name: str
    """As the function of the line would write it: `rows`, `self.metric.preds`."""
    file: str
    function: str
    statement: Statement
    """The first that adds to it."""
    is_emptied: bool
    """Whether a statement of its function or class removes something, or makes it anew."""
    is_carried: bool = False
    """Whether it is an attribute that is given a new value, which is computed from its own."""
    removed_in: str = ""
    """The method that has the only statement of its class which removes an entry."""
    removed_by: Statement | None = None
    """That statement."""


LetGoHow: TypeAlias = Literal[
    "emptied", "answered", "slower", "passed", "under", "keyed", "listed", "later", "end"
]
"""`emptied`: in the rounds that add. `answered`: there as well, one entry by the key of what has
come from elsewhere, unless `past` leaves before. `slower`: in other rounds than those, such as of
another thread. `passed`: a statement or an exception may leave before. `under`: only under a
condition. `keyed`: one entry, by another key than those that are added, and where that is missing
no error tells it. `listed`: the keys that another container holds, to which what only looks up adds
none. `later`: after the loop that adds. `end`: in a function that no loop reaches, as far as it
shows."""


class LetGo(NamedTuple):
    """What removes from a container of the program."""

    how: LetGoHow
    file: str
    function: str
    statement: Statement
    past_file: str = ""
    past_in: str = ""
    """The function that has the next."""
    past: Statement | None = None
    """The statement that leaves before, or the condition; of `keyed` the one that makes the other
    key of the first, with more text, where that shows; of `listed` what adds to the other one."""
    keys: tuple[str, str] = ("", "")
    """Of `keyed`: the one that is added under, and the one that is removed by. Of `listed`: the
    other container, and nothing."""
    message: str = ""
    """Of `under`: the class of the program for whose objects the condition asks by isinstance()."""
    made_file: str = ""
    made_in: str = ""
    """The function that has the next."""
    made: Statement | None = None
    """The condition under which the only place of the program makes such an object, or calls what
    makes it."""


class LookedUp(NamedTuple):
    """That what adds to a mapping only reads it: each key that is not there yet gets an entry."""

    kind: str
    """`defaultdict`, or the name of a class of the program with a method `__missing__`."""
    made: int
    """The line that makes it, or begins that method."""
    file: str
    others: tuple[int, ...]
    """The lines of the same file as the first that look it up as well."""


class GivenUp(NamedTuple):
    """A statement after which the program no longer waits for what is still in a container."""

    file: str
    function: str
    statement: Statement


LeftHow: TypeAlias = Literal["as_completed", "wait", "task"]
"""`as_completed`: the loop over it is left at the first. `wait`: `asyncio.wait` has returned at the
first, and the pending ones are not cancelled. `task`: nothing keeps or awaits it."""


class LeftWaiting(NamedTuple):
    """A task of asyncio that nothing awaits or cancels, and that waits for an event of its own.

    In place of a container, the event is what keeps them: its waiters refer to each.
    """

    how: LeftHow
    made: str
    """What makes the task or coroutine: `self.on_closed()`."""
    file: str
    function: str
    """The coroutine that waits for the event."""
    statement: Statement
    is_set: bool = False
    """Whether another part of the program sets an event of that name."""


class RoundOf(NamedTuple):
    """A loop of the program in each of whose rounds something is reached."""

    file: str
    first: int
    last: int
    """Its last line."""
    function: str
    is_async: bool
    """Whether a coroutine may wait in it without an end, `while` or `async for`: on no stack then.
    A `for` of a coroutine most often starts or collects a few, and is left soon."""
    header: Statement
    by: tuple[str, ...] = ()
    """The functions between the loop and what is reached, outermost first."""
    let_go: LetGo | None = None
    """What removes from the container, seen from this loop; `None` for nothing."""


class Holder(NamedTuple):
    """A container of the program that is added to again and again, and outlives the loop."""

    name: str
    """As it is written where it is added to: `self.trials`."""
    owner: str
    """The class that has it; empty for a variable."""
    file: str
    function: str
    statement: Statement
    """The first that adds to it."""
    size: int
    """Of what is added: 2 for arrays, tensors and what was read, 1 for what does not show."""
    is_asked: bool
    """Whether its function looks in it first, as one that fills a cache does."""
    opens: bool
    """Whether what is added has a descriptor of its own: an open file, a socket, a mapping."""
    is_renewed: bool
    """Whether the container is made again and again, as a variable of a function that is called
    in a loop."""
    rounds: tuple[RoundOf, ...]
    """Nearest first."""
    outside: str = ""
    """The function that leads to it and that a library calls, such as `do_POST`."""
    outside_file: str = ""
    let_go: LetGo | None = None
    """What removes from it, where it has no round; `None` for nothing."""
    given_up: GivenUp | None = None
    """Of one whose entries an answer removes: what takes them out of another container only."""
    looked_up: LookedUp | None = None
    store: str = ""
    """Its class, where it is a store of torch.distributed that gets ever new keys: `TCPStore`.
    Of a PrefixStore that of the store below it, as far as this shows."""
    left_waiting: LeftWaiting | None = None
    is_sent: bool = False
    """Of a variable: whether its function sends or yields it, most often when it is complete."""


class LoopEnd(NamedTuple):
    """A loop around a line, and a condition in it that leaves it."""

    header: Statement
    condition: Statement
    """`if control.should_stop: break`."""


class CleanUp(NamedTuple):
    """What a function runs once a block of it is left, whichever way: also by an exception."""

    header: Statement
    """`finally:`, or the `with` statement whose `__exit__` is called."""
    first: int
    """The first line of the block: of a `finally` the body of its `try`."""
    last: int
    is_exit: bool = False
    """Whether it is the end of a `with` statement."""
    leaves: tuple[Statement, ...] = ()
    """What leaves the block before its end: `if done: return`, or a `yield`, after which the caller
    may let go of a generator."""


class Caught(NamedTuple):
    """An `except` clause after which a function goes on behind its `try` statement."""

    header: Statement
    first: int
    """The first line of the block whose exceptions it catches."""
    last: int
    end: int
    """The last line of the whole statement."""
    log: Statement | None = None
    """The first statement in it that logs or prints."""


class LeftOut(NamedTuple):
    """A loop that fills a container, and a condition by which some rounds add nothing."""

    file: str
    function: str
    adds: Statement
    """`result.rows.append(row)`."""
    unless: Statement
    """`if not self.is_whole(row): continue`."""


class InFlight(NamedTuple):
    """A limit on what is under way, that a statement keeps which sends more of it."""

    name: str
    """Of the count, the container or the semaphore: `self.sent`."""
    guard: Statement
    """The condition that compares it with the limit, or the statement that takes a permit."""
    rises: Statement
    """What adds to it beside the statement that sends; of a permit `guard`."""
    falls_in: str
    """The function, of the same file, that has the next."""
    falls: Statement
    """The first that takes away from it again, or releases a permit."""
    by_content: bool = False
    """Whether that is by what was received, and not by one: `self.sent -= len(result.rows)`."""
    left_out: LeftOut | None = None
    """What leaves parts out of that, where it is a length."""


class Ending(NamedTuple):
    """A statement of the program that would end a wait, as far as the name of an object tells."""

    file: str
    function: str
    """That contains it; `<module>` for none."""
    statement: Statement
    under: Statement | None = None
    """The header of the innermost condition around it, or of the `except` clause."""
    after: Statement | None = None
    """The last `if` before it whose body leaves the function or the loop."""
    limit: InFlight | None = None
    """The limit on what is under way that it keeps, where it sends."""


class OriginStep(NamedTuple):
    """A statement by which a value gets to a condition."""

    file: str
    function: str
    statement: Statement
    is_call: bool = False
    """Of the limit of a wait: whether it calls the function of the step before, and passes it."""


class IdleRound(NamedTuple):
    """Why a round of a loop sleeps in place of its work: nothing was chosen for it."""

    condition: Statement
    """Around the sleep: `if not batch:`."""
    given: Statement
    """`batch = self.scheduler.schedule()`."""
    file: str
    function: str
    """That chooses."""
    adds: Statement
    """What adds to its result, or returns it: `scheduled.append(request)`."""
    unless: Statement
    """What leaves before that: `if not self.fits(request): break`. Of several the most telling."""
    first: Statement | None = None
    """`request = self.waiting[0]` before it, or the header of a `for` loop that it leaves."""
    container: str = ""
    """`self.waiting`, of which each round takes the first anew, until that is over."""
    because: OriginStep | None = None
    """The condition in what `unless` asks, under which that answers so."""


class Retry(NamedTuple):
    """A call that has failed where a line is reached, in a loop that then tries it again."""

    statement: Statement
    """Of the `try` block, `return self._send(endpoint, payload)`."""
    handler: Statement
    """`except OSError as error:`."""
    loop: Statement
    """Its header."""
    is_connection: bool
    """Whether its exceptions are those of connections, as far as names tell."""
    target: str = ""
    """What the call gets that no statement of the loop sets anew: `endpoint`."""
    chosen: OriginStep | None = None
    """What chooses that before, the same in all rounds: `endpoint = next(self.rotation)`."""
    kept: OriginStep | None = None
    """What fills the list that this goes through, from which nothing in the file removes any."""


class SourceLine(Struct, frozen=True):
    """The statement at one line of the program, and what decides whether it is reached."""

    file: str
    line: int
    function: str
    """As stacks name it; the line was checked to belong to a function of that name."""
    statement: Statement
    within: tuple[Statement, ...] = ()
    """Headers of the compound statements of the function around it, outermost first."""
    after: tuple[Statement, ...] = ()
    """`if` statements before it whose body leaves the function or the loop, in order."""
    ends: tuple[Statement, ...] = ()
    """`if` statements elsewhere in the innermost loop around it whose body leaves that loop."""
    endless: EndlessLoop | None = None
    """The innermost loop without a condition around it."""
    skips: tuple[Skip, ...] = ()
    """What its function takes and may not give back."""
    defined: int = 0
    """The line at which its function begins: two of one name in a file differ by it. 0: unknown."""
    locks: tuple[TakenLock, ...] = ()
    """What its function takes, and functions of the same file that it calls, its own first."""
    may_send: bool = True
    """Whether one of these, or what they call in another file of the program, may send or write."""
    held: tuple[Statement, ...] = ()
    """Calls of `acquire()` before it in its function, whose lock no statement on the way to it has
    released, outermost first."""
    until_exits: Statement | None = None
    """The condition that ends the innermost loop around it once children have exited, as far as it
    asks for that by is_alive(), poll(), exitcode or active_children()."""
    connects: Statement | None = None
    """The statement that connects to a server, where the line is reached when that has failed, in a
    loop that then tries again."""
    guarded: tuple[Guarded, ...] = ()
    """Calls before it in its function that stand under a condition with a rank in it, as far as
    words show."""
    cleared: Statement | None = None
    """Where the line waits for an event: the statement right before it that clears the same event,
    with nothing in between that could check what was set before."""
    deciders: tuple[Decider, ...] = ()
    """The conditions and loops of its function, in order."""
    added: tuple[AddedTo, ...] = ()
    """What its function can reach that the program adds to."""
    until: EndlessLoop | None = None
    """The innermost `while` loop with a condition around it, or that begins there."""
    asked: Statement | None = None
    """The statement before it that sends or writes, without a loop around the line alone that goes
    through all that comes."""
    ended_by: tuple[Ending, ...] = ()
    """The statements that would end a wait at it, or in the loop around it."""
    ends_around: tuple[LoopEnd, ...] = ()
    """The conditions that leave the loops around the innermost one of its function, as `ends`."""
    is_async: bool = False
    """Whether its function is a coroutine (`async def`)."""
    idle: IdleRound | None = None
    """Where it sleeps for want of work: what has left that round without any."""
    retry: Retry | None = None
    """Where it sleeps before it tries again: what has failed."""
    cleans_up: tuple[CleanUp, ...] = ()
    """The clean-ups that it is part of, outermost first; that of a `with` statement as the last."""
    caught: tuple[Caught, ...] = ()
    """What catches an exception of it in its function and goes on, outermost first."""


OriginKind: TypeAlias = Literal[
    "argument",
    "clock",
    "counter",
    "data",
    "environment",
    "exception",
    "file",
    "flag",
    "hash",
    "limit",
    "machine",
    "message",
    "one-rank",
    "queue",
    "random",
    "rank",
    "set-order",
    "shared",
    "signal",
    "thread",
    "time-left",
    "unshared",
    "",
]
"""Where a value comes from. `argument`: the command line. `counter`: is added to on some ways only.
`data`: what the process reads or iterates over. `environment`: a variable of the environment.
`exception`: one that was caught, or not. `file`: which files there are. `flag`: an event or a
variable that a thread sets. `hash`: hash(). `limit`: whether a time limit has passed. `machine`:
memory or load. `message`: from another process. `one-rank`: of a collective whose result only one
rank gets. `queue`: the size of one. `random`: a random number. `set-order`: the order of a set.
`shared`: a collective that gives all ranks the same. `signal`: what a handler of one sets; the
signals are what it is about. `thread`: what a function sets that another thread runs. `time-left`:
a deadline from which a clock is subtracted, which nothing on the way keeps from falling below zero.
`unshared`: a collective would give all ranks the same, under a condition on a parameter that no
call gives, which is what it is about. Empty: not known."""


class Origin(NamedTuple):
    """Where a value comes from that decides at a statement, as far as names show."""

    file: str
    statement: Statement
    """The condition, loop, `except` clause or call that the value decides at."""
    kind: OriginKind
    about: str
    """The expression that it comes from, `time.monotonic()`."""
    steps: tuple[OriginStep, ...] = ()
    """The statements in between, the nearest first; the last contains `about`. None where the first
    statement does."""
    is_certain: bool = True
    """Whether each step is the only one that the source shows; of the limit of a wait, whether
    nothing shows that it may be None."""
    names: tuple[str, ...] = ()
    """What the first statement passes it as, where that is a call: `src`; the limit of a wait as
    written, `timeout_ms`."""
    seeded: OriginStep | None = None
    """Of a random number the statement that seeds it otherwise in each process; `None` where
    nothing does that."""


FixedHow: TypeAlias = Literal["argument", "attribute", "global", "variable"]
"""`argument`: of the function that has the loop. `attribute`: only the making of the object sets
it. `global`: is set once in the file. `variable`: is set before the loop."""


class Fixed(NamedTuple):
    """A name that has the same value in each round."""

    name: str
    """`self.path`."""
    how: FixedHow
    file: str
    line: int
    """That sets it; of an argument, that of its function. 0 of what is only read."""


AgainKind: TypeAlias = Literal["builds", "column", "counts", "reads", "sends", "walks"]
"""`builds`: a model, a template, a client. `column`: all of a column or an array, of which one
element is taken. `counts`: adds up the sizes of all parameters. `reads`: all of a file. `sends`:
pickles what is the same for each message or task. `walks`: goes through all of a container that
only grows."""


class Again(NamedTuple):
    """A statement that does the same in each round as in those before, or as much and more."""

    kind: AgainKind
    text: str
    """The expression, `np.load(self.path)`; of `walks` what is gone through."""
    fixed: tuple[Fixed, ...]
    """What it is given; nothing where all of that are constants, and of `walks`."""
    file: str
    function: str
    statement: Statement
    last: int
    """Its last line."""
    round: RoundOf | None
    """The nearest loop that reaches it; `None` where a library calls what does."""
    outside: str = ""
    """The function that a library calls."""
    adds: AddedTo | None = None
    """Of `walks`: the container, and what adds to it in the same rounds."""


class DroppedResult(NamedTuple):
    """A call that starts a task and drops its result: an exception in the task is never raised."""

    file: str
    line: int
    method: str
    """`submit`, `apply_async`, `map_async` or `starmap_async`."""
    statement: Statement


class UnsafeWake(NamedTuple):
    """A statement of another thread that completes an object of asyncio, or calls a loop.

    What it schedules is done in the next round of the loop, which it does not begin.
    """

    kind: str
    """`Event`, `Future`, `Queue`, `Task`, `Condition` or `loop`."""
    name: str
    """Of the object, as written: `self.done`."""
    method: str
    file: str
    function: str
    """That the other thread runs."""
    statement: Statement
    is_in_loop: bool
    """Whether it is in a loop of its function."""
    started_file: str
    started_in: str
    """The function that has the next."""
    started: Statement
    """What has the thread run it; the header of `run` of a class that is derived from Thread."""
    wakes_at_end: bool
    """Whether the loop is woken up when the function returns, as asyncio.to_thread does."""
    awaited_file: str = ""
    awaited_in: str = ""
    awaited: Statement | None = None
    """Where a coroutine waits for the object, as far as that shows."""
    made: str = ""
    """What makes it, or its annotation: `asyncio.Event()`; empty where that does not show."""


UnreadHow: TypeAlias = Literal["dropped", "kept", "together", "later"]
"""`dropped`: nothing keeps the task. `kept`: something does, and nothing awaits it. `together`: it
is awaited with others until all have ended. `later`: it is awaited after the wait."""


class UnreadTask(NamedTuple):
    """A task that alone would end a wait of another coroutine, and whose exception nobody reads."""

    coroutine: str
    """The function that it runs."""
    file: str
    started_file: str
    started_in: str
    """The function that has the next."""
    started: Statement
    how: UnreadHow
    read: Statement | None
    """Of `together` and `later`: what would raise its exception, in the function that starts it."""
    name: str
    """What the others wait for, as the task writes it: `self.queue`."""
    method: str
    gives: Statement
    """What would end the wait: `await queue.put(item)`."""
    awaited_file: str
    awaited_in: str
    awaited: Statement
    """The wait of the others: `item = await queue.get()`."""
    waits: Statement | None = None
    """A statement of its own at which it may wait for another task, in place of having ended."""


class Coroutines(Struct, frozen=True):
    """What the source shows of waits of coroutines, which are on no stack."""

    unsafe: tuple[UnsafeWake, ...] = ()
    unread: tuple[UnreadTask, ...] = ()


MarkKind: TypeAlias = Literal[
    # Runs a backward pass in each round of a loop after which an optimizer takes one step, outside
    # of no_sync(). About: the lines of the loop and of the step, `48, 56`.
    "accumulates",
    # Adds to a count, of which another method waits until it is 0, and does not look whether one
    # waits. About: the count, that method and the lines of its wait, the functions that add, and
    # the loop or the calls that repeat it, as for "registers",
    # `self.readers, acquire_write, 22-23, acquire_read/reading; main.py:26-42 serve`.
    "admits",
    # Sets a timer that ends in a signal. About: the lines at which its function returns before it
    # is cancelled, `39, 45`; without one, `raise of 21`, the first call whose exception leaves it
    # running.
    "alarm",
    # A method adds one of its arguments to a container of its object. About: its position and the
    # container, `0, self.outputs`.
    "argument-kept",
    # Returns a comparison with what a clock says, itself or by a function that it calls. About: the
    # function.
    "asks-clock",
    # Waits for the result of a task right after the statement that starts it, so that none of the
    # tasks of its function runs beside another. About: the line and the method that start it,
    # `44, submit`.
    "awaits-task",
    # Makes each sleep longer than the one before, and nothing in the file sets it back. About: the
    # variable of the sleep.
    "backoff",
    # A backward pass.
    "backward",
    # A loop with a backward pass or another collective in each round, over what was selected from a
    # batch of the rank by its values. About: the line that selects it and its statement,
    # `63, present = labels.any(dim=1).nonzero().tolist()`.
    "batch-rounds",
    # Makes a container with a bound, or removes from one under a comparison. About: the kind of
    # container and the bound, `deque config.window`; or the container.
    "bounded",
    # Reads a line or a part through the buffer of a file object whose descriptor the file waits for
    # in poll() or select(). About: the object and the line that waits for it or registers it,
    # `self.helper.stdout, 26`.
    "buffered-read",
    # Fills a cache that nothing in the file bounds. About: the cache.
    "cache",
    # Takes a part of an argument, which a call then hands on as the key of a cache. About: the line
    # that stores it, and the function of that, `metrics.py:52, labels`.
    "cache-key",
    # Calls a method of the module inside of a wrapper such as DistributedDataParallel, and wraps
    # nothing in its function. About: the method.
    "calls-wrapped",
    # In the forward pass of a model, or in a method that this calls, changes a parameter in place
    # by what was computed from the batch, and shares that with no other rank. About: the parameter.
    "changed-by-hand",
    # Calls a collective of torch.distributed, or a method of that name. About: its name.
    "collective",
    # Returns a tensor that is made anew from a forward pass which returns another one elsewhere.
    # About: the condition, `if rows.size(0) == 0: in line 45`.
    "cuts-graph",
    # Calls itertools.cycle. About: what it repeats.
    "cycle",
    # Takes every n-th element for a worker of n.
    "dealt",
    # Asks for a signal at the end of the parent.
    "death-signal",
    # Gives SIGPIPE its default action, by itself or among other signals.
    "default-sigpipe",
    # Leaves items out, or takes as many, as the module `random` says.
    "draw",
    # Empties a container some time after its items were read, while other functions of the file add
    # to it. About: the container, the line that reads it, and these functions,
    # `self.samples, 42, predict`.
    "emptied-late",
    # A loop in whose rounds items are taken out of a queue, in its function or by one of the same
    # file that this calls. About: the queue.
    "empties",
    # Returns an empty container on some ranks only, of a function that returns more on others.
    # About: the condition, `if rank != 0: in line 50`.
    "empty-on-ranks",
    # Takes an item of a queue without waiting for it, or for some time only, and leaves or goes on
    # without one where there is none; or the `while` statement that asks whether there is one.
    # About: the queue.
    "ends-when-empty",
    # Arms a watchdog of faulthandler, or a timer, that ends its own process. About: after what time
    # and with which exit status, to what it writes the stacks as written (`nothing` for a timer,
    # empty for standard error), and as for "alarm" what leaves its function before it is cancelled:
    # `LIMIT_S; 1; trace_file; 39, 45`.
    "exits-late",
    # Leaves a process that os.fork() has made by sys.exit(), which runs what that has inherited:
    # functions of atexit, the ends of blocks. About: the line of the fork.
    "forked-exit",
    # Under a condition, makes or returns a loss of a new tensor, into which no parameter has gone.
    # About: the condition, `if skip: in line 50`.
    "fresh-loss",
    # Goes through futures as they complete, of which nothing in the file lets go. About: the
    # variable that refers to them.
    "futures",
    # Keeps the garbage collector from running by itself.
    "gc-off",
    # Lets it run again, or collects.
    "gc-on",
    # Raises after a loop that has caught other exceptions. About: the `except` clause whose
    # exceptions came first, `except OSError: in line 51, logged in line 52`.
    "gives-up",
    # Gives to a model what its call in the round before has returned, and nothing in the file
    # detaches it. About: the state.
    "graph-carried",
    # Adds what a model has computed with autograd on to a container that outlives the round, in a
    # function without a backward pass. About: the container, the line of the call of the model and
    # what empties the container, `self.outputs, 25, reset()`.
    "graph-kept",
    # Gives such a value to a method of another object, in a function with a backward pass one that
    # is computed right there. About: the method, the position of the argument and the line of the
    # call of the model, `update, 0, 25`.
    "graph-passed",
    # In the forward pass of a model, computes an attribute from itself and from tensors of the
    # batch, with their graph. About: the attribute.
    "graph-running",
    # Adds a loss itself, of which the loop runs the backward pass, to a sum that outlives the
    # round. About: the sum.
    "graph-summed",
    # Compares the time since something was noted with a limit, in a file that ends other processes.
    # About: the name of what was noted, the last line of its body, and the limit as written,
    # `seen, 52, self.ttl`.
    "judges-silence",
    # Adds an exception that was caught, or an object that is made of it, to a container from which
    # nothing in the file removes anything, in each round of a loop of the program. About: the
    # container and the loop, `self.failures; main.py:35-43 work`, as for "registers".
    "keeps-exception",
    # Adds to a list, a set or a deque from which nothing in the file removes anything. About: the
    # container.
    "kept",
    # Adds to a container of an object that only the end of that object empties. About: the
    # container and the functions that empty it, `self.items, clear() and __exit__()`.
    "kept-to-end",
    # Sends SIGKILL to another process. About: the first lines of the loops around it and around
    # the only calls that lead there, the functions of these, and the condition,
    # `70, 99; poll, end; if used > limit: in line 50`. Of several calls of one function, those
    # under a comparison of how long something took make a mark more each.
    "kills",
    # Sends a signal to the process group of a child, in a file that makes none for it: that is its
    # own. About: the signal, and the line that starts the first child, `SIGKILL, 23`.
    "kills-group",
    # Sends the number of characters of a text before its encoded bytes. About: the text.
    "length-of-text",
    # Sets a limit of its process, such as RLIMIT_CPU. About: its name, `RLIMIT_CPU`.
    "limit",
    # Loads the state of optimizers or schedulers on one rank only. About: them, and the condition,
    # `optimizer, scheduler; if rank == 0: in line 24`.
    "loads-alone",
    # Calls a blocking collective of one tensor in a loop over parameters or other tensors. About:
    # its name, the lines of the loop, and what that goes through,
    # `all_reduce, 25-27, net.parameters()`.
    "looped-collective",
    # Makes a ThreadPoolExecutor that a name refers to. About: the name, max_workers where that is a
    # number, and thread_name_prefix where that is written there, `self.pool, 8, exchange`.
    "makes-executor",
    # Makes a file or folder of which the name is written out in part. About: the name, with `*` for
    # the rest, and what removes it: `none` if nothing in its file does, the condition of the only
    # call that does, empty if that is not known, `ocr_*.npy; none` or
    # `part-*.bin; if done: in line 40`.
    "makes-file",
    # Makes a process group of torch.distributed, in a file that ends none. About: the function.
    "makes-group",
    # Makes a queue without a bound in the process of a Manager. About: the queue.
    "managed-queue",
    # Gets a logger by a name that is put together from values of its function or object, and a
    # handler is added to it there. About: the variable of the logger, `self.logger`.
    "named-logger",
    # Makes what stays until its counterpart is called, and nothing that the round reaches calls
    # that. About: the `NeverClosedKind`, the class or function, the method that would release it
    # (with an attribute where it is of another object, empty where there is none), where a class of
    # the program takes it, how it is left, and the loop that repeats it. It is left by `none` where
    # nothing releases it, by `over` where an attribute is given a new one, or under the condition
    # of the only call: `threads, Feed, close, feed.py:12, none; main.py:51-57 work` or
    # `pipe, Sim, free, sim.py:9, over if self.viewer: in line 40; main.py:51-57 work`.
    "never-closed",
    # Switches autograd off.
    "no-grad",
    # Leaves gradients unreduced for a while.
    "no-sync",
    # Sets an element or an attribute to what a clock says. About: its name as in "judges-silence",
    # `async` in a coroutine, and whether a loop of its function does it `again` or it does so
    # `once`, `seen, async again`.
    "notes-time",
    # Lets a Pool or an executor of processes make a task of each item, as its chunksize is 1.
    # About: the method.
    "one-by-one",
    # Opens a connection to a server, or makes what opens one. About: the variable that refers to
    # it, and what is called, `self.db, psycopg2.connect`.
    "opens-connection",
    # Stores a key in a dictionary that its function returns, and only under a condition on data,
    # where the function stores other keys without it. About: the condition, `if found.any(): in
    # line 38`.
    "optional-key",
    # Adds the result of a training step, of which a part is differentiated, to a variable that
    # lives as long as the loop. About: the variable.
    "outputs-kept",
    # Sets MASTER_PORT, or gives to init_process_group or a store where ranks meet: a port, file or
    # number that its process chooses for itself. About: what chooses it, `find_free_port()`.
    "own-rendezvous",
    # Gives to ReduceLROnPlateau a value that no collective has made the same on all ranks. About:
    # the value.
    "own-value",
    # Goes on to the next item at the beginning of a loop, by a condition that is not on the item.
    # About: the lines from the header of the loop to its end, `54-57`.
    "passed-over",
    # Calls an element of a ModuleList or ModuleDict in a loop, which passes over some by what is in
    # a tensor or by a random number. About: the condition, `if not mask.any(): in line 20`.
    "passes-over-module",
    # Calls something for its effect and gives it such a part. About: the name of what it calls, the
    # position of the argument, the tensor and the part, as for "saves-part",
    # `put, 1, feats, feats[i]`.
    "passes-part",
    # Calls a function of which another one of the file keeps the results (functools.cache or
    # lru_cache). About: both, `kernel, cached_kernel`.
    "past-cache",
    # The `with` block of a Pool. About: its lines, `31-38`.
    "pool-block",
    # Gives a callback to a call of a Pool that starts tasks. About: the parameter and the callback,
    # and the lines at which it looks up or removes keys without an `except` clause for that, as far
    # as the file shows them, `callback, self.table.add; 29 row["mean"]`.
    "pool-callback",
    # Starts calls in the `with` block of a Pool, and nothing in the block waits for their results:
    # these are given back or used after it. About: the method and the first line of the block,
    # `imap, 31`.
    "pool-left",
    # Reads a line of standard input after it has written the beginning of a line, as one does that
    # asks a question. About: the statement that writes, and its line,
    # `sys.stderr.write("Overwrite? [y/N] ") in line 13`; empty for the text of input() itself.
    "prompts",
    # Puts an item into a queue. About: the queue.
    "put",
    # Searches with a pattern of `re` that begins with a repeat without an end, and can fail after
    # it, so that each place of a run of such characters is tried. About: as of "uses-wide-pattern".
    "quadratic-pattern",
    # Adds a QueueHandler in a function that gets the logger of multiprocessing.
    "queue-handler",
    # Raises an exception that the file has kept before, in each round of a loop that catches it.
    # About: where it is kept, the line that keeps it and the loop,
    # `self.known[], 38; main.py:35-43 work`, as for "registers".
    "raises-kept",
    # In a generator, passes on one of several, or a slice, of what its loop has read. About: what
    # the loop goes through.
    "reads-all",
    # Takes the exit status of any child.
    "reap",
    # Makes a profiler of torch that is started for all rounds of a loop, or for a time that does
    # not show, and keeps a record of all that runs. About: what makes it, the line that starts it,
    # and what runs meanwhile: lines of the file, the `with` block of a class, or nothing that
    # shows, `torch.profiler.profile, 22, 22-58`, `profile, 22, with OpTimes`.
    "records-all",
    # Registers, in each round of a loop of the program or in each call from outside, something that
    # keeps an object or what belongs to that call, and nothing in the file takes it back. About:
    # what would take it back, and the loop or the calls, `atexit.unregister(); main.py:51-57 work`,
    # with `async` before the name of a coroutine; `removeHandler(); each call of on_message()`. Of
    # a handler of `OPENING_HANDLERS` with its class, `removeHandler() for FileHandler; ...`.
    "registers",
    # Registers a hook on a module or a tensor of torch, in a function that may run again and again.
    "registers-hook",
    # Adds to a container that is a global variable or an attribute of a class. About: the
    # container, `known` or `Handler.known`.
    "registry",
    # Releases what its function has not taken. About: what is released.
    "releases",
    # Removes a temporary folder that its file makes, in a process that may be a forked one as well.
    # About: `exit` as an interpreter ends or `block` as a block ends, the name of the folder with
    # `?` for a character by chance and `*` for any text, and what removes it where that is another
    # statement, `exit; streams-????????; shutil.rmtree(self.path) in line 20`.
    "removes-folder",
    # Sets the time at which something is due to a time from now, whether or not it is set already.
    # About: what is set.
    "renews-deadline",
    # Makes a part of a model anew, of which its function reads the old one. About: the attribute.
    "replaces-module",
    # Gives a group of an optimizer another parameter, and asks for the state of the old one by a
    # number or a text. About: that key and its line, and the loop that repeats it, as for
    # "registers", `index, 26; trainer.py:54-59 fit_scene`.
    "replaces-parameter",
    # Sets what a loop over a range begins with, in a function that loads or looks for a saved state
    # and calls no collective. About: the line of the loop, its function and the name,
    # `82, run, self.start_epoch`.
    "restores-start",
    # Reads a saved state, in a function that uses the number of the rank, has looked for files
    # before and calls no collective. About: the line that looks for them.
    "resumes-alone",
    # Catches an exception in a loop that then repeats the `try` block, and that is left once the
    # block has ended without one. About: the lines of the block, `36-39`.
    "retries",
    # Writes or reads an object by a Pickler or Unpickler that is an attribute, and whose memo
    # nothing in the file clears. About: the attribute, and the line that makes it,
    # `self.pickler, 12`.
    "reuses-pickler",
    # Writes all of a container to a file that a function adds to, and from which nothing in the
    # class or function removes. About: the container, what adds to it and at which line, and the
    # loop or the calls that repeat it, as for "registers",
    # `self.results, add, 23; each call of save()`.
    "rewrites",
    # Sets the number of threads for calls of torch.distributed.rpc. About: the number, as written.
    "rpc-threads",
    # Has a thread run a function from a coroutine: run_in_executor() or to_thread(). About: the
    # function.
    "runs-in-thread",
    # Runs an event loop of asyncio, or gives a function that does to a thread.
    "runs-loop",
    # Saves or pickles an argument of its function, as it is. About: its position, `1`.
    "saves",
    # Saves or pickles a part of a tensor, which has the storage of the whole. About: the part, with
    # the line and function that make it where that is another function, and the tensor, with the
    # word tensor where it is known to be one, `feats[i], feats` or
    # `buffer.py:47 segment: self.obs[a:b], tensor self.obs`.
    "saves-part",
    # Seeds `random`, or calls what may, by its name: where there is one, nothing is said of draws.
    "seed",
    # Defines, in a function, one that calls itself, which is a reference cycle.
    "self-reference",
    # Sends in a loop over connections to each of them by its own send(), which pickles each time.
    # About: `same` where all get one value, `several` where they get the elements of another list,
    # which may be the same, and the value, `several, (method, (arg,))`.
    "sends-each",
    # Sends SIGHUP, SIGUSR1 or SIGUSR2 to another process; each ends one that does not handle it.
    # About: the name of the signal.
    "sends-signal",
    # Sets an attribute by what a clock says: under a comparison with it, or to one. About: the
    # attribute.
    "set-by-clock",
    # Goes through a set, where the order of its elements may matter. About: the set.
    "set-order",
    # Sets the cpus that a process may use. About: `one` where it names one; empty otherwise.
    "sets-affinity",
    # Starts several tasks of asyncio that run beside each other, or one for each connection. About:
    # the coroutines, `fetch, report`.
    "several-tasks",
    # Goes through the parameters of a model in a function that calls a collective.
    "shares-parameters",
    # Takes long for what it does (`SlowKind`). About: its `SlowKind` and the expression, `deepcopy:
    # copy.deepcopy(x)`.
    "slow",
    # Starts a process, or makes a Pool, in a loop.
    "starts",
    # Takes the standard deviation of a tensor, dividing by n - 1.
    "std",
    # Stores under a key of its own in a dict of an object, from which nothing in the file removes
    # anything. About: the dict.
    "stored",
    # Submits a task.
    "submits",
    # Catches any exception in a loop, and goes on with the next round. About: the lines of its
    # `try` block, `36-39`.
    "swallows",
    # Takes an item out of a queue. About: the queue.
    "takes",
    # Takes a permit or connection while it keeps another one of the same. About: what, the line
    # that takes the first, and the function and line that take the second,
    # `self.pool.acquire(), 46, profile, 54`.
    "takes-again",
    # Takes items until its own one comes, and drops the others. About: the queue or connection, and
    # what the item is compared with, `self.answers, number`.
    "takes-own",
    # Ends a process or the workers of a pool by terminate(). About: the process or pool.
    "terminates",
    # Chooses by hash(), `hash(name) % count`. That of a text, or of a tuple with one, is another
    # number in each interpreter. About: what it hashes.
    "text-hash",
    # Takes the first or last of the names of files in the order of texts, in a file that makes such
    # names with a number of no fixed width. About: the name that is made, `model_{version}.pt`.
    "text-order",
    # Computes from the module inside of a wrapped model, in a function that runs a backward pass
    # and does not call the wrapper. About: the wrapper.
    "trains-unwrapped",
    # Opens a file of data so that it is empty first. About: the part of the name of the file that
    # is written out, and the lines of the condition and of the loop around, 0 for none,
    # `features.npy, 30, 27`.
    "truncates",
    # Writes a message to a socket in two parts, in a file that does not set TCP_NODELAY.
    "two-writes",
    # Makes a queue without a bound. About: the queue.
    "unbounded",
    # Makes a view of an array with a shape of its own, or reads at an address, and nothing in the
    # function asks how long the array is. About: the array, and of what the shape is computed,
    # `samples; npts, step, width`.
    "unchecked-view",
    # Waits for a condition before anything in its function has looked at the data that another one
    # changes before it notifies, and does not look when a time limit ends either. About: the
    # condition, the data, the line that changes it, that function, and the line that notifies,
    # `self.ready, self.items, 22, put, 23`.
    "unchecked-wait",
    # Opens a descriptor that is a plain number, and its function neither closes it nor gives it
    # away. About: the kind of descriptor, the parts of its name that are written out, and the loop
    # that repeats it or the calls, `file ocr_*.npy; main.py:51-57 work`, as for "registers".
    "unclosed",
    # Counts something as done in a shared Value, after a call whose exception is caught and passes
    # over it, so that the loop of its function, or of one that calls it, goes on. About: the
    # counter, the line of that call, and the `except` clause,
    # `unfinished.value, 31, except Exception as error: in line 27`.
    "uncounted",
    # Writes in the loop of a coroutine to a stream of asyncio, without a call of drain(). About:
    # the stream.
    "undrained-write",
    # Writes to the standard input of another program, and nothing in the file flushes it.
    "unflushed",
    # Makes parameters trainable that another function of the file has frozen. About: those of what,
    # and the line that freezes them, `module.backbone, 31`.
    "unfreezes",
    # Passes over a later release() of what was acquired before, as a call whose exception skips it,
    # or a `continue`. About: what, and the line of acquire(), 0 where that is in another function,
    # `self.permits, 62`.
    "unreleased",
    # Puts a callback, or what makes one, into an event loop of asyncio that the file makes and
    # that nothing in it runs or hands on. About: the loop, the line that makes it, the method, and
    # the loop of the program or the calls that repeat it, as for "registers",
    # `self.loop, 30, run_in_executor; main.py:35-50 train`.
    "unrun-loop",
    # Takes the module out of a wrapped model.
    "unwrapped",
    # Uses a pattern of `re` by a variable that can be a `wide-pattern`. About: the line of that
    # pattern, with its file where that is another one, and the pattern, `5, \\S+@\\S+` or
    # `rules.py:5, \\S+@\\S+`.
    "uses-wide-pattern",
    # Keeps an element or a slice of something in a container. About: the part, and where it was
    # made if that was before, `line 23: rows[:, 0]` or `audio.py:39: signal[a:b]`.
    "view",
    # Gives such a slice to a method of an object. About: the method, the position of the argument
    # and what it is, `add, 2, audio.py:39: signal[a:b]`.
    "view-passed",
    # Wakes up threads or coroutines that wait: set(), notify(), notify_all(). About: of what.
    "wakes",
    # Goes through what a list or deque holds to find or move one element. About: the container and
    # the expression, `deque self.rows, self.rows[i]`.
    "walks",
    # Changes the filters of warnings, or stores them to be set back: what was kept of warnings is
    # dropped then, and "always" and "ignore" keep nothing. About: the name of the function.
    "warning-filter",
    # Gives warnings.warn() a text with a value that belongs to one call.
    "warns-anew",
    # Compiles or uses a literal pattern of `re` that can match the same text in many ways. About:
    # the pattern.
    "wide-pattern",
    # Wraps a model in DistributedDataParallel or the like. About: the wrapper.
    "wraps",
]
"""What a statement of the program does that can be the reason for what is observed."""


NeverClosedKind: TypeAlias = Literal[
    "any",
    "event",
    "figures",
    "file",
    "memory",
    "pipe",
    "processes",
    "shm",
    "threads",
    "writers",
]
"""`any`, `event`, `file`, `pipe`, `shm`: a descriptor that is a plain number, by what it is of.
`figures`: one of matplotlib.pyplot. `memory`: native memory of a library. `processes`: a child.
`threads`: a thread that runs a method of the object. `writers`: a SummaryWriter, with its thread
and file."""


SlowKind: TypeAlias = Literal[
    "all-of",
    "archive",
    "choice",
    "collect",
    "copy",
    "dates",
    "deepcopy",
    "digest",
    "elements",
    "empty-cache",
    "files",
    "indented",
    "list-to-array",
    "list-to-tensor",
    "metadata",
    "rows",
    "single-values",
    "stack",
]
"""`all-of`: goes through all of a list that outlives the call. `archive`: opens an archive anew,
whose table of contents is read then. `choice`: goes through all weights or elements for each
draw. `collect`: a garbage collection. `copy`: copies all of what outlives the call, or its
beginning. `dates`: parses a time by a pattern. `deepcopy`: copies object by object. `digest`:
computes a digest of all bytes of an array, a tensor, a file or an object. `elements`: compares or
converts elements of a tensor one by one. `empty-cache`: gives cached GPU memory back.
`files`: looks through all folders below one. `indented`: writes JSON with an indent.
`list-to-array` and `list-to-tensor`: convert a list value by value. `metadata`: reads that of
installed packages. `rows`: makes an object of each row of a data frame. `single-values`: reads
one number of a tensor or array a call. `stack`: reads the source of the callers."""


UNDOES = (
    "remove_event_handler",
    "remove_listener",
    "remove_observer",
    "unregister_callback",
    "unregister_handler",
    "unsubscribe",
)
"""Methods that take back what `add_listener()`, `subscribe()` and the like have registered."""


OPENING_HANDLERS: Mapping[str, Literal["file", "socket"]] = {
    "DatagramHandler": "socket",
    "FileHandler": "file",
    "RotatingFileHandler": "file",
    "SocketHandler": "socket",
    "SysLogHandler": "socket",
    "TimedRotatingFileHandler": "file",
    "WatchedFileHandler": "file",
}
"""Handlers of logging that keep a descriptor open, and its kind (CPython 3.14)."""


RAISE_OF = "raise of "
"""Begins `Mark.about` of a timer that an exception of a line leaves running."""


class Mark(NamedTuple):
    """A statement in a file of the program that can be the reason for what is observed."""

    kind: MarkKind
    file: str
    function: str
    """That contains it; `<module>` for none."""
    about: str
    """What it is about, as `MarkKind` says; empty where that says nothing."""
    statement: Statement


INNER = frozenset(("<listcomp>", "<genexpr>", "<dictcomp>", "<setcomp>", "<lambda>"))
"""Names of code objects that are written within the statement of a function."""
LINES_LIMIT = 512
"""Lines, marks, and calls that drop a result, kept of one job: a line of a loop changes often, but
a program has few that take time."""


class SourceRead(Struct, frozen=True):
    """An input: what was read of source files. Readings add up; a line is read once."""

    at_s: float
    lines: tuple[SourceLine, ...] = ()
    dropped: tuple[DroppedResult, ...] = ()
    marks: tuple[Mark, ...] = ()
    holders: tuple[Holder, ...] | None = None
    """Those of all files that were read until then, in place of earlier ones; `None`: as before."""
    problems: tuple[str, ...] = ()
    """Files at which the reading itself failed, each in one sentence."""
    origins: tuple[Origin, ...] = ()
    """Of the conditions, loops and calls of these lines, each once."""
    coroutines: Coroutines | None = None
    """Those of all files that were read until then, in place of earlier ones; `None`: as before."""
    again: tuple[Again, ...] | None = None
    """What all files that were read until then do again in each round; as `holders`."""

"""Mutations of injecting and detaching, and the fast tests that must fail with them."""

from __future__ import annotations

from tests.mutations.mutation import Mutation

ATTACH = "mpwatch/attach/"
UNIT = "tests/unit/attach/"
EXCHANGE = UNIT + "test_exchange_dir.py::"
PAYLOAD = UNIT + "test_payload.py::"

ATTACHING = (
    Mutation(
        11,
        "a link in the exchange directory is followed",
        ATTACH + "payload/exchange_dir.py",
        "_read",
        "os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK",
        "os.O_RDONLY | os.O_NONBLOCK",
        (EXCHANGE + "test_no_link_in_the_directory_is_followed",),
    ),
    Mutation(
        11,
        "the owner of a runtime directory is not checked",
        ATTACH + "payload/exchange_dir.py",
        "opened_runtime",
        "found.st_uid != target.uid",
        "False",
        (EXCHANGE + "test_a_directory_of_another_user_is_never_used",),
    ),
    Mutation(
        11,
        "root keeps its groups where it acts as the user of a target",
        "mpwatch/collect/process/foreign_files.py",
        "acting_as",
        "_set_groups(libc, groups)",
        "",
        (EXCHANGE + "test_what_a_group_of_the_observer_may_write_is_not_written_for_another_user",),
    ),
    Mutation(
        11,
        "the path of a runtime directory leads out of a chroot",
        ATTACH + "payload/exchange_dir.py",
        "opened",
        'part == ".."',
        "False",
        (EXCHANGE + "test_no_path_leads_out_of_the_root_of_a_target",),
    ),
    Mutation(
        11,
        "each step of a path leaves a descriptor open",
        ATTACH + "payload/exchange_dir.py",
        "opened",
        "os.close(fd)\nfd = inner",
        "fd = inner",
        (EXCHANGE + "test_no_descriptor_stays_open",),
    ),
    Mutation(
        11,
        "the memory of a target stays open",
        ATTACH + "methods.py",
        "call_is_under_way",
        "memory.close()",
        "",
        (UNIT + "test_methods.py::test_no_descriptor_of_a_targets_memory_stays_open",),
    ),
    Mutation(
        11,
        "the tracer does not see that the pid is another process by now",
        ATTACH + "native/tracer.py",
        "queue_here",
        "require_same(process)",
        "",
        (UNIT + "test_methods.py::test_no_descriptor_of_a_targets_memory_stays_open",),
    ),
    Mutation(
        11,
        "the log is written in a directory of another user",
        ATTACH + "injection_log.py",
        "InjectionLog._opened",
        "found.st_uid != os.geteuid()",
        "False",
        (UNIT + "test_injection_log.py::test_no_log_is_written_in_a_directory_of_another_user",),
    ),
    Mutation(
        11,
        "a block is ready while its text is still being written",
        ATTACH + "native/native_call.py",
        "store",
        "write(at + off, content_off)",
        "write(at, content)",
        (
            UNIT + "test_native_call.py::"
            "test_a_call_never_finds_its_block_ready_before_that_is_complete",
        ),
    ),
    Mutation(
        11,
        "other threads of the observer run while a target is stopped",
        ATTACH + "native/gil_syscalls.py",
        "libc",
        "ctypes.PyDLL(None, use_errno=True)",
        "ctypes.CDLL(None, use_errno=True)",
        (UNIT + "test_gil_syscalls.py::test_no_other_thread_runs_before_a_target_goes_on",),
    ),
    Mutation(
        11,
        "nothing ends a tracer that is stopped together with its observer",
        ATTACH + "native/tracer.py",
        "serve",
        "timer.start(within_s)",
        "",
        (
            "tests/integration/attach/test_safety.py::"
            "test_a_target_is_released_where_observer_and_tracer_are_both_stopped",
        ),
    ),
    Mutation(
        11,
        "a detach is told without a look at what is left",
        ATTACH + "inject.py",
        "_unloaded",
        "_remains(target, timeout_s)",
        "Presence()",
        (
            "tests/integration/attach/test_detach_verified.py::"
            "test_a_thread_that_stays_after_a_successful_answer_is_named",
        ),
    ),
    Mutation(
        11,
        "an injection that is interrupted while the program imports leaves its directory",
        ATTACH + "inject.py",
        "deliver",
        "if later is not None:\n    later.remove()",
        "",
        (
            UNIT + "test_inject.py::"
            "test_an_injection_that_ends_while_the_program_imports_leaves_no_directory",
        ),
    ),
    Mutation(
        11,
        "an injection that is called off meanwhile leaves the hook",
        ATTACH + "payload/program.py",
        "_load_if_wanted",
        "if not was_attached:\n    unload()",
        "",
        (
            PAYLOAD + "test_an_injection_that_is_called_off_meanwhile_unloads_the_hook"
            "_that_it_has_loaded",
        ),
    ),
    Mutation(
        11,
        "the end of the program waits for an injection that is over",
        ATTACH + "payload/program.py",
        "_before_exit",
        "lock.release()",
        "",
        (PAYLOAD + "test_the_end_of_the_program_waits_for_no_injection_that_is_over",),
    ),
    Mutation(
        11,
        "the answer is written to a frozen disk",
        ATTACH + "payload/program.py",
        "answer",
        "_is_frozen(folder)",
        "False",
        (PAYLOAD + "test_no_answer_is_written_to_a_frozen_disk",),
    ),
)

"""In which folders a demonstration makes its cgroup."""

from mpwatch.demo.bounds import cgroup_folders


def test_in_version_2_a_cgroup_is_made_beside_the_processes_or_above_them() -> None:
    membership = "0::/user.slice/user-0.slice/session-1.scope\n"

    folders = list(cgroup_folders(membership, "memory"))

    # A cgroup that has processes gives its children no controllers.
    assert folders == [
        ("/sys/fs/cgroup/user.slice/user-0.slice/session-1.scope", "memory.max"),
        ("/sys/fs/cgroup/user.slice/user-0.slice", "memory.max"),
        ("/sys/fs/cgroup/user.slice", "memory.max"),
        ("/sys/fs/cgroup/", "memory.max"),
    ]


def test_in_version_1_a_cgroup_is_made_in_the_hierarchy_of_its_controller() -> None:
    membership = "4:memory:/batch\n3:cpu,cpuacct:/\n2:pids:/batch/one\n"

    assert list(cgroup_folders(membership, "memory")) == [
        ("/sys/fs/cgroup/memory/batch", "memory.limit_in_bytes")
    ]
    assert list(cgroup_folders(membership, "pids")) == [
        ("/sys/fs/cgroup/pids/batch/one", "pids.max")
    ]

import resource


def address_space():
    with open("/proc/self/status") as f:
        for line in f:
            if line.startswith("VmSize"):
                return int(line.split()[1]) * 1024


def cap_memory(headroom_mb):
    """Gives this process headroom_mb more than it has now, like the batch system's ulimit -v."""
    limit = address_space() + headroom_mb * 2**20
    resource.setrlimit(resource.RLIMIT_AS, (limit, limit))


def is_out_of_memory(error):
    text = str(error)
    return "can't allocate memory" in text or "out of memory" in text

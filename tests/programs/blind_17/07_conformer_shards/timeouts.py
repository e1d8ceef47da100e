import functools
import signal


class TimeoutExpired(Exception):
    pass


def timeout(seconds, message="timed out"):
    """Raises TimeoutExpired in the calling process when the function takes longer than `seconds`."""

    def decorate(function):
        def handler(signum, frame):
            raise TimeoutExpired(f"{function.__name__}: {message}")

        @functools.wraps(function)
        def wrapper(*args, **kwargs):
            previous = signal.signal(signal.SIGALRM, handler)
            signal.alarm(seconds)
            try:
                result = function(*args, **kwargs)
                signal.alarm(0)
                return result
            finally:
                signal.signal(signal.SIGALRM, previous)

        return wrapper

    return decorate

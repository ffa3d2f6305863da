"""What ends a run from outside."""

import signal
from collections.abc import Callable, Iterator
from contextlib import contextmanager

_WORDS = {signal.SIGINT: "Ctrl-C", signal.SIGTERM: "SIGTERM", signal.SIGHUP: "SIGHUP"}


@contextmanager
def interrupted_by_signals(interrupt: Callable[[str], None]) -> Iterator[None]:
    """Ctrl-C, a scheduler's SIGTERM or a lost terminal end the run in order, however often.

    What the caller told this process to ignore (nohup, a job in the background) stays ignored.
    """
    before = {
        number: signal.signal(number, lambda n, _: interrupt(_WORDS[signal.Signals(n)]))
        for number in _WORDS
        if signal.getsignal(number) is not signal.SIG_IGN
    }
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)

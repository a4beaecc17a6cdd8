"""Python's cycle collector while a worker runs."""

from __future__ import annotations

import gc
from collections.abc import Iterator
from contextlib import contextmanager

#: New containers between two looks; Python's own number is made for programs that make few.
_YOUNG = 10_000


@contextmanager
def patient_collector() -> Iterator[None]:
    """Leave alone what is there already, and look less often at what comes: an op's objects are freed by their counts.

    Not for JS children: an isolate that waits for the collector holds megabytes.

    With Python's own threshold the collector takes a seventh of the time of a worker with short ops.
    """
    before = gc.get_threshold()
    gc.freeze()
    gc.set_threshold(_YOUNG, *before[1:])
    try:
        yield
    finally:
        gc.set_threshold(*before)
        gc.unfreeze()

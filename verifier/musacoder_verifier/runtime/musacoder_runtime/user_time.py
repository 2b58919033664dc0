"""How long the user's own code has taken, told to the parent whenever it begins and ends.

When a stage's time is up, its child gives no answer any more: what was told before says whether the
user's code took the time, or the work that this product does around it.
"""

from __future__ import annotations

import time
from contextlib import contextmanager
from typing import Any, Callable, Iterator


class UserTime:
    """`tell` sends a message; `seconds` are those of all calls so far."""

    def __init__(self, tell: Callable[[dict[str, Any]], None]) -> None:
        self._tell = tell
        self._depth = 0
        self.seconds = 0.0

    @contextmanager
    def running(self) -> Iterator[None]:
        """Around user code that has ended on the device too when it returns."""
        self._depth += 1
        started = time.monotonic()
        if self._depth == 1:
            self._say(running=True)
        try:
            yield
        finally:
            self._depth -= 1
            if self._depth == 0:
                self.seconds += time.monotonic() - started
                self._say(running=False)

    def _say(self, running: bool) -> None:
        self._tell({"user_code": {"seconds": self.seconds, "running": running}})

"""The operations of one Site: one running, at most one waiting, the latest wins.

The idea is rust-analyzer's `op_queue.rs`: whoever asks twice while the first still runs wants the
newest state once, not everything in between.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Generic, TypeVar

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Requested(Generic[T]):
    operation: T
    cause: str


class OperationQueue(Generic[T]):
    def __init__(self) -> None:
        self._running: Requested[T] | None = None
        self._waiting: Requested[T] | None = None

    @property
    def running(self) -> T | None:
        return self._running.operation if self._running else None

    @property
    def waiting(self) -> T | None:
        return self._waiting.operation if self._waiting else None

    def request(self, operation: T, cause: str) -> T | None:
        """Puts an operation in the waiting place and returns the one that it replaces."""
        replaced = self.waiting
        self._waiting = Requested(operation, cause)
        return replaced

    def withdraw(self, operation: T) -> bool:
        """Takes a waiting operation back; False when it is not the one that waits."""
        if self._waiting is None or self._waiting.operation is not operation:
            return False
        self._waiting = None
        return True

    def start(self) -> Requested[T] | None:
        """The operation to run now; None while another runs or when none waits."""
        if self._running is not None or self._waiting is None:
            return None
        self._running, self._waiting = self._waiting, None
        return self._running

    def complete(self) -> None:
        """The running operation has ended, in whatever way."""
        self._running = None

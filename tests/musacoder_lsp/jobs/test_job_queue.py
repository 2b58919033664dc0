"""One running, at most one waiting, the latest wins."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from musacoder_lsp.jobs.queue import OperationQueue


@given(st.lists(st.sampled_from(["request", "start", "complete", "withdraw"]), max_size=40))
def test_any_order_of_calls(calls: list[str]) -> None:
    queue: OperationQueue[object] = OperationQueue()
    running = waiting = None
    for number, call in enumerate(calls):
        if call == "request":
            operation = object()
            assert queue.request(operation, f"cause {number}") is waiting
            waiting = operation
        elif call == "start":
            started = queue.start()
            if running is None and waiting is not None:
                assert started is not None and started.operation is waiting
                running, waiting = waiting, None
            else:
                assert started is None
        elif call == "complete":
            queue.complete()
            running = None
        else:
            assert queue.withdraw(waiting) is (waiting is not None)
            waiting = None
        assert queue.running is running and queue.waiting is waiting

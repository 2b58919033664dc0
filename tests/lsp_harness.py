"""A typed-enough client around a server in this process: every message is seen, none is lost.

Leaving the harness fails when the server sent a request or notification that the test neither
expected nor allowed.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

from musacoder_lsp.jobs.makers import Makers
from musacoder_lsp.server import KernelServer

Message = dict[str, Any]

# What a session sends at any time and no test needs to expect.
ALLOWED = frozenset({"window/logMessage", "workspace/codeLens/refresh"})


class Harness:
    """`answers[method]` makes the result of a request that the server sends."""

    def __init__(self, server: KernelServer) -> None:
        self.server = server
        self.received: list[Message] = []
        self.answers: dict[str, Callable[[Any], Any]] = {
            "workspace/configuration": lambda params: [None for _ in params["items"]],
            "workspace/codeLens/refresh": lambda _: None,
        }
        self.expected: set[str] = set()
        self._pending: dict[int, asyncio.Future[Message]] = {}
        self._arrived = asyncio.Condition()
        self._number = 0
        self._buffer = b""
        self.unhandled: list[Message] = []
        self._waiters: set[asyncio.Task[None]] = set()
        server.protocol.set_writer(self)  # type: ignore[arg-type]

    # The writer's side

    def write(self, data: bytes) -> None:
        self._buffer += data
        while b"\r\n\r\n" in self._buffer:
            head, rest = self._buffer.split(b"\r\n\r\n", 1)
            size = int(head.split(b":")[1])
            if len(rest) < size:
                return
            self._buffer = rest[size:]
            self._receive(json.loads(rest[:size]))

    def close(self) -> None:
        return None

    def _receive(self, message: Message) -> None:
        self.received.append(message)
        if "method" not in message:
            self._pending.pop(message["id"]).set_result(message)
        elif "id" in message:
            answer = self.answers.get(message["method"])
            if answer is None:
                self.unhandled.append(message)
                return
            result = answer(message["params"])
            reply = {"id": message["id"], "result": result}
            asyncio.get_running_loop().call_soon(self._send, reply)
        elif message["method"] not in self.expected | ALLOWED:
            self.unhandled.append(message)
        task = asyncio.get_running_loop().create_task(self._announce())
        self._waiters.add(task)
        task.add_done_callback(self._waiters.discard)

    async def _announce(self) -> None:
        async with self._arrived:
            self._arrived.notify_all()

    # The client's side

    def _send(self, message: Message) -> None:
        self.server.protocol.receive(json.dumps({"jsonrpc": "2.0", **message}).encode())

    async def raw(self, method: str, params: Any) -> Message:
        """The whole answer, errors included."""
        self._number += 1
        answer = self._pending[self._number] = asyncio.get_running_loop().create_future()
        self._send({"id": self._number, "method": method, "params": params})
        return await answer

    async def request(self, method: str, params: Any) -> Any:
        message = await self.raw(method, params)
        assert "error" not in message, message["error"]
        return message["result"]

    def notify(self, method: str, params: Any) -> None:
        self._send({"method": method, "params": params})

    async def command(self, name: str, *arguments: Any) -> Any:
        return await self.request(
            "workspace/executeCommand", {"command": f"musacoder.{name}", "arguments": arguments}
        )

    def open(self, uri: str, text: str, version: int = 1, language: str = "python") -> None:
        item = {"uri": uri, "languageId": language, "version": version, "text": text}
        self.notify("textDocument/didOpen", {"textDocument": item})

    def change(self, uri: str, version: int, *changes: Message) -> None:
        self.notify(
            "textDocument/didChange",
            {"textDocument": {"uri": uri, "version": version}, "contentChanges": list(changes)},
        )

    async def lenses(self, uri: str) -> list[Message]:
        """All lenses, resolved."""
        found = await self.request("textDocument/codeLens", {"textDocument": {"uri": uri}})
        return [await self.request("codeLens/resolve", lens) for lens in found]

    async def titles(self, uri: str) -> list[str]:
        return [lens["command"]["title"] for lens in await self.lenses(uri)]

    def sent(self, method: str) -> list[Any]:
        return [m["params"] for m in self.received if m.get("method") == method]

    async def until(self, holds: Callable[[], Any]) -> Any:
        """Waits until something holds: looked at after each message and, because not every change
        is told, every few milliseconds. The pytest run's own limit ends it."""
        while not (found := holds()):
            async with self._arrived:
                with contextlib.suppress(TimeoutError):
                    await asyncio.wait_for(self._arrived.wait(), 0.02)
        return found

    async def job_ended(self, job: str) -> None:
        await self.server.session.runner.wait(job)
        # What the end of the Job sends is on its way once its task is done.
        for _ in range(5):
            await asyncio.sleep(0)


@contextlib.asynccontextmanager
async def harness(
    makers: Makers,
    capabilities: Message,
    folders: list[Path] | None = None,
    *,
    options: Any = None,
    environment: dict[str, str] | None = None,
) -> AsyncIterator[Harness]:
    server = KernelServer(makers, environment)
    client = Harness(server)
    items = [{"uri": path.as_uri(), "name": path.name} for path in folders or []]
    try:
        await client.request(
            "initialize",
            {
                "processId": None,
                "rootUri": None,
                "workspaceFolders": items or None,
                "capabilities": capabilities,
                "initializationOptions": options,
            },
        )
        client.notify("initialized", {})
        yield client
        await client.request("shutdown", None)
    finally:
        await server.end_session()
    assert client.unhandled == [], client.unhandled

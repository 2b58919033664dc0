"""A language client over stdio that does what an editor does, for `musacoder demo` and `bench`.

It speaks plain JSON-RPC, so that what it measures and shows is the server alone.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, TypeVar

# What VS Code announces, as far as the server looks at it.
CAPABILITIES: dict[str, Any] = {
    "general": {"positionEncodings": ["utf-16"]},
    "experimental": {"musacoderStatus": True},
    "window": {"workDoneProgress": True, "showDocument": {"support": True}},
    "workspace": {
        "applyEdit": True,
        "configuration": True,
        "workspaceFolders": True,
        "codeLens": {"refreshSupport": True},
        "workspaceEdit": {"documentChanges": True},
    },
    "textDocument": {
        "codeLens": {"dynamicRegistration": True, "resolveSupport": {"properties": ["command"]}},
        "hover": {"contentFormat": ["markdown", "plaintext"]},
        "publishDiagnostics": {"relatedInformation": True, "versionSupport": True},
        "codeAction": {
            "codeActionLiteralSupport": {
                "codeActionKind": {"valueSet": ["quickfix", "refactor", "refactor.rewrite"]}
            },
            "resolveSupport": {"properties": ["edit", "command"]},
            "dataSupport": True,
            "disabledSupport": True,
        },
    },
}


_GONE = "The language server ended unexpectedly; `musacoder lsp` on a terminal shows why."

T = TypeVar("T")


class ServerError(Exception):
    """The server answered a request with an error."""

    def __init__(self, code: int, message: str) -> None:
        super().__init__(message)
        self.code = code


class ServerGone(Exception):
    """The server's process ended while an answer was awaited."""


class EditorClient:
    """One connection to one server process.

    `listeners[method]` is called with the parameters of each notification and of each request
    that the server sends; requests are answered as an editor would.
    """

    def __init__(
        self, process: asyncio.subprocess.Process, settings: Mapping[str, Any] | None = None
    ) -> None:
        self.process = process
        self.settings = dict(settings or {})
        self.listeners: dict[str, list[Callable[[Any], None]]] = {}
        self.capabilities: dict[str, Any] = {}
        self._pending: dict[int, asyncio.Future[Any]] = {}
        self._next_id = 0
        self._reader = asyncio.create_task(self._read())

    @classmethod
    @contextlib.asynccontextmanager
    async def connect(
        cls,
        argv: Sequence[str],
        root: Path | None,
        *,
        settings: Mapping[str, Any] | None = None,
        environment: Mapping[str, str] | None = None,
    ) -> AsyncIterator[EditorClient]:
        """Starts `argv`, initializes it for the folder `root`, and ends it on the way out."""
        process = await asyncio.create_subprocess_exec(
            *argv,
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.DEVNULL,
            env={**os.environ, **(environment or {})},
            start_new_session=True,
            limit=64 * 1024 * 1024,
        )
        client = cls(process, settings)
        try:
            await client._initialize(root)
            yield client
        finally:
            await client.close()

    async def _initialize(self, root: Path | None) -> None:
        folders = [{"uri": root.as_uri(), "name": root.name}] if root else None
        result = await self.request(
            "initialize",
            {
                "processId": os.getpid(),
                "rootUri": root.as_uri() if root else None,
                "workspaceFolders": folders,
                "capabilities": CAPABILITIES,
                "initializationOptions": None,
            },
        )
        self.capabilities = result["capabilities"]
        self.notify("initialized", {})

    def on(self, method: str, listener: Callable[[Any], None]) -> None:
        self.listeners.setdefault(method, []).append(listener)

    @property
    def pid(self) -> int:
        return self.process.pid

    def next(self, method: str) -> asyncio.Future[Any]:
        """The parameters of the next message of this kind."""
        arrived = asyncio.get_running_loop().create_future()

        def listener(params: Any) -> None:
            self.listeners[method].remove(listener)
            if not arrived.done():
                arrived.set_result(params)

        self.on(method, listener)
        return asyncio.ensure_future(self.until_gone(arrived))

    async def until_gone(self, awaited: Awaitable[T]) -> T:
        """Awaits, and raises ServerGone instead of waiting for a server that has ended."""
        future = asyncio.ensure_future(awaited)
        await asyncio.wait({future, self._reader}, return_when=asyncio.FIRST_COMPLETED)
        if not future.done():
            future.cancel()
            raise ServerGone(_GONE)
        return future.result()

    async def request(self, method: str, params: Any) -> Any:
        """Sends a request and returns its result. Raises ServerError or ServerGone."""
        self._next_id += 1
        answer = asyncio.get_running_loop().create_future()
        self._pending[self._next_id] = answer
        self._send({"id": self._next_id, "method": method, "params": params})
        return await answer

    def notify(self, method: str, params: Any) -> None:
        self._send({"method": method, "params": params})

    def open(self, uri: str, text: str, *, version: int = 1) -> None:
        document = {"uri": uri, "languageId": "python", "version": version, "text": text}
        self.notify("textDocument/didOpen", {"textDocument": document})

    async def close(self) -> int:
        """Shuts the server down as editors do and returns its exit code; kills it after 5 s."""
        if self.process.returncode is None:
            with contextlib.suppress(ServerError, ServerGone, ConnectionError, TimeoutError):
                await asyncio.wait_for(self.request("shutdown", None), 5)
                self.notify("exit", None)
            try:
                await asyncio.wait_for(self.process.wait(), 5)
            except TimeoutError:
                self.process.kill()
        code = await self.process.wait()
        await self._reader
        return code

    def _send(self, message: dict[str, Any]) -> None:
        assert self.process.stdin is not None
        body = json.dumps({"jsonrpc": "2.0", **message}).encode()
        self.process.stdin.write(b"Content-Length: %d\r\n\r\n%s" % (len(body), body))

    async def _read(self) -> None:
        stream = self.process.stdout
        assert stream is not None
        with contextlib.suppress(asyncio.IncompleteReadError, ConnectionError):
            while True:
                head = await stream.readuntil(b"\r\n\r\n")
                length = int(head.lower().split(b"content-length:")[1].split(b"\r\n")[0])
                self._receive(json.loads(await stream.readexactly(length)))
        for answer in self._pending.values():
            if not answer.done():
                answer.set_exception(ServerGone(_GONE))

    def _receive(self, message: dict[str, Any]) -> None:
        if "method" not in message:
            answer = self._pending.pop(message["id"], None)
            if answer is None or answer.done():
                return
            if "error" in message:
                error = message["error"]
                answer.set_exception(ServerError(error["code"], error["message"]))
            else:
                answer.set_result(message.get("result"))
            return
        params = message.get("params")
        for listener in tuple(self.listeners.get(message["method"], ())):
            listener(params)
        if "id" in message:
            self._send({"id": message["id"], "result": self._answer(message["method"], params)})

    def _answer(self, method: str, params: Any) -> Any:
        if method == "workspace/configuration":
            return [self.settings for _ in params["items"]]
        if method == "workspace/applyEdit":
            return {"applied": False, "failureReason": "this client shows, it does not edit"}
        if method == "window/showDocument":
            return {"success": True}
        return None

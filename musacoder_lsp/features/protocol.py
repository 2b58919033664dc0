"""pygls' protocol without its leaks and surprises (each override says which)."""

from __future__ import annotations

import asyncio
import json
import logging
from collections.abc import Callable, Generator
from concurrent.futures import Future
from typing import TYPE_CHECKING, Any

from lsprotocol import types
from pygls.exceptions import JsonRpcException
from pygls.protocol import LanguageServerProtocol, lsp_method

from musacoder_lsp.features.document import DocumentWorkspace

if TYPE_CHECKING:
    from musacoder_lsp.server import KernelServer

logger = logging.getLogger(__name__)

# How long an answer of the client is waited for before its bookkeeping is dropped, in seconds.
_ANSWER_PATIENCE = 120.0


class RawJson(str):
    """A result that is JSON text already."""

    __slots__ = ()


class KernelProtocol(LanguageServerProtocol):
    _server: KernelServer

    def receive(self, body: bytes) -> None:
        """Handles one message. A request that cannot be read still gets its one answer, which
        pygls leaves out."""
        try:
            data = json.loads(body)
        except (ValueError, RecursionError) as problem:
            logger.error("a message is not JSON: %s", problem)
            self._send_failure(None, -32700, f"The message is not JSON: {problem}.")
            return
        if not isinstance(data, dict):
            self._send_failure(None, -32600, "The message is not a JSON-RPC object.")
            return
        try:
            message = self.structure_message(data)
        except JsonRpcException as problem:
            if "method" in data and "id" in data:
                self._send_failure(data["id"], problem.code or -32602, str(problem))
            else:
                logger.error("an unusable message was dropped: %s", data.get("method"))
            return
        if isinstance(message, dict):
            self._send_failure(data.get("id"), -32600, "The message is not JSON-RPC 2.0.")
            return
        method = getattr(message, "method", "")
        waits = hasattr(message, "id") and method
        if waits and self._workspace is None and method != types.INITIALIZE:
            self._send_failure(message.id, -32002, "The server is not initialized.")
            return
        if waits and self._shutdown:
            self._send_failure(message.id, -32600, "The server is shutting down.")
            return
        if not waits and self._workspace is None and method not in ("", types.EXIT):
            return
        self.handle_message(message)

    def _send_failure(self, msg_id: Any, code: int, sentence: str) -> None:
        self._send_data(
            {"jsonrpc": "2.0", "id": msg_id, "error": {"code": code, "message": sentence}}
        )

    def _execute_handler(
        self,
        msg_id: Any,
        handler: Any,
        callback: Callable[[Future[Any]], None],
        args: tuple[Any, ...] | None = None,
        kwargs: dict[str, Any] | None = None,
    ) -> None:
        """pygls keeps a future for each notification for ever: 40 MB for 20 000 edits."""

        def settle(future: Future[Any]) -> None:
            self._request_futures.pop(msg_id, None)
            callback(future)

        super()._execute_handler(msg_id, handler, settle, args, kwargs)

    def send_request(
        self,
        method: str,
        params: Any | None = None,
        callback: Callable[[Any], None] | None = None,
        msg_id: Any | None = None,
    ) -> Future[Any]:
        """Forgets a request that the client never answers."""
        future: Future[Any] = super().send_request(method, params, callback, msg_id)
        own_id = next(
            key for key, value in reversed(self._request_futures.items()) if value is future
        )

        def forget() -> None:
            self._result_types.pop(own_id, None)
            if self._request_futures.pop(own_id, None) is not None and not future.done():
                future.set_exception(TimeoutError(f"the client did not answer {method}"))

        timer = asyncio.get_running_loop().call_later(_ANSWER_PATIENCE, forget)
        future.add_done_callback(lambda _: timer.cancel())
        return future

    def _send_response(
        self, msg_id: Any, result: Any | None = None, error: Any | None = None
    ) -> None:
        """Splices results that are text already, so that thousands of lenses cost little."""
        if error is None and isinstance(result, RawJson):
            self._result_types.pop(msg_id, None)
            body = f'{{"jsonrpc":"2.0","id":{json.dumps(msg_id)},"result":{result}}}'.encode()
            self._write_body(body)
            return
        super()._send_response(msg_id, result, error)

    def _send_data(self, data: Any) -> None:
        self._write_body(json.dumps(data, default=self._serialize_message).encode())

    def _write_body(self, body: bytes) -> None:
        if self.writer is not None:
            self.writer.write(b"Content-Length: %d\r\n\r\n%s" % (len(body), body))

    def use_own_documents(self, params: types.InitializeParams) -> None:
        """Replaces the workspace that pygls has just made by ours, with nothing in it yet."""
        made = self.workspace
        self._workspace = DocumentWorkspace(
            made.root_uri,
            self._server._text_document_sync_kind,
            params.workspace_folders or [],
            made.position_encoding,
        )

    def own_documents(self) -> DocumentWorkspace:
        """No property: pygls reads every attribute while there is no workspace yet."""
        workspace = self.workspace
        assert isinstance(workspace, DocumentWorkspace)
        return workspace

    @lsp_method(types.TEXT_DOCUMENT_DID_CHANGE)
    def lsp_text_document__did_change(
        self, params: types.DidChangeTextDocumentParams
    ) -> Generator[Any, Any, None]:
        """The text is changed by our own handler, which tolerates a file that was never opened."""
        yield self.fm.features[types.TEXT_DOCUMENT_DID_CHANGE], (params,), None

    @lsp_method(types.WORKSPACE_EXECUTE_COMMAND)
    def lsp_workspace__execute_command(
        self, params: types.ExecuteCommandParams
    ) -> Generator[Any, Any, Any]:
        """Our commands check their own arguments and answer with a result that says what failed: a
        raised error would be shown twice in VS Code."""
        result = yield self._server.run_command, (params,), None
        return result

    @lsp_method(types.SHUTDOWN)
    def lsp_shutdown(self, *args: Any) -> Generator[Any, Any, None]:
        """pygls iterates over a dictionary that changes meanwhile."""
        yield self.fm.features[types.SHUTDOWN], args, None
        current = self.msg_id
        for msg_id, future in list(self._request_futures.items()):
            if msg_id != current and not future.done():
                future.cancel()
        self._shutdown = True

    @lsp_method(types.EXIT)
    def lsp_exit(self, *args: Any) -> Generator[Any, Any, None]:
        """pygls swallows the exit code: without `shutdown` before, it must be 1."""
        self._server.stop(0 if self._shutdown else 1)
        yield from ()

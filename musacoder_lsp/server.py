"""The language server: one process, one loop, stdio. It validates, enqueues and answers."""

from __future__ import annotations

import asyncio
import gc
import logging
import os
import signal
import warnings
from collections.abc import Coroutine, Mapping
from pathlib import Path
from typing import Any

from lsprotocol import converters, types
from pygls.lsp.server import LanguageServer

from musacoder_lsp import __version__
from musacoder_lsp.features import diagnostics
from musacoder_lsp.features.client import Client
from musacoder_lsp.features.code_lens import CachedLenses
from musacoder_lsp.features.document import DocumentWorkspace
from musacoder_lsp.features.execute_command import COMMANDS, execute_command
from musacoder_lsp.features.progress import ProgressBook
from musacoder_lsp.features.protocol import KernelProtocol
from musacoder_lsp.features.refresh import LensRefresh
from musacoder_lsp.features.routes import ROUTES
from musacoder_lsp.features.status import send_status
from musacoder_lsp.jobs.job import Job
from musacoder_lsp.jobs.makers import REAL, Makers
from musacoder_lsp.lens import SiteState
from musacoder_lsp.parent_watch import ParentWatch
from musacoder_lsp.session import Session
from musacoder_lsp.transport import ProtocolWriter, open_reader, read_message

# pygls asks it at import and at each registration; Python 3.14 deprecates the name.
warnings.filterwarnings("ignore", message=".*iscoroutinefunction.*", category=DeprecationWarning)

logger = logging.getLogger(__name__)

# Seconds that the way out may take before the process ends anyway: editors kill after two.
_LAST_WORDS = 0.2
_END_PATIENCE = 1.0
# How often elapsed times on lenses and in the progress move, in seconds.
_TICK = 1.0


class KernelServer(LanguageServer):
    """State that belongs to the protocol; all else is in `session`."""

    protocol: KernelProtocol

    def __init__(self, makers: Makers = REAL, environment: Mapping[str, str] | None = None) -> None:
        super().__init__(
            "musacoder-lsp",
            __version__,
            protocol_cls=KernelProtocol,
            converter_factory=converters.get_converter,
        )
        self._makers = makers
        self._environment = environment
        self._stopped = asyncio.Event()
        self._tasks: set[asyncio.Task[Any]] = set()
        self._session: Session | None = None
        self._ticker: asyncio.Task[None] | None = None
        self._noted: set[str] = set()
        self._parent: ParentWatch | None = None
        self._ending: asyncio.Task[None] | None = None
        self._end_by = 0.0
        self.exit_code = 1
        self.client = Client()
        self.progress_book = ProgressBook(self)
        self.refresh = LensRefresh(self)
        self.lens_cache: dict[str, CachedLenses] = {}
        self.published: dict[str, frozenset[str]] = {}
        self.has_diagnostics: set[str] = set()
        for method, handler, options in ROUTES:
            self.feature(method, options)(handler)
        for name in COMMANDS:
            self.command(name)(_never_called)

    # What the features use

    @property
    def session(self) -> Session:
        assert self._session is not None, "initialize comes first"
        return self._session

    @property
    def documents(self) -> DocumentWorkspace:
        return self.protocol.own_documents()

    def now(self) -> float:
        """The clock of Job states, in seconds."""
        return asyncio.get_running_loop().time()

    def start_session(self) -> None:
        if self._session is None:
            self._session = Session(self, self._makers, self._environment)

    async def end_session(self) -> None:
        """Ends all work, for at most `_END_PATIENCE` seconds over all calls: what is left then dies
        with this process. Progress ends first, while the client still listens."""
        self.progress_book.end_all()
        if self._ending is None:
            self._ending = asyncio.create_task(self._end())
            self._end_by = self.now() + _END_PATIENCE
        done, _ = await asyncio.wait({self._ending}, timeout=max(0.0, self._end_by - self.now()))
        if not done:
            logger.warning("some work did not end in time; it dies with this process")
        elif (problem := self._ending.exception()) is not None:
            logger.error("the session did not end cleanly", exc_info=problem)

    async def _end(self) -> None:
        if self._ticker is not None:
            self._ticker.cancel()
        self.refresh.close()
        if self._session is not None:
            await self._session.shutdown()
        for task in list(self._tasks):
            task.cancel()

    def state_of(self, uri: str, site: str) -> SiteState | None:
        document = self.documents.opened(uri)
        view = self.session.documents.view(document.uri) if document is not None else None
        spot = view.spot(site) if view is not None else None
        return self.session.state(document.uri, spot) if document is not None and spot else None

    def spawn(self, work: Coroutine[Any, Any, Any]) -> None:
        """Runs beside the handlers; what it raises is logged, never shown."""
        task = asyncio.get_running_loop().create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._settled)

    def _settled(self, task: asyncio.Task[Any]) -> None:
        self._tasks.discard(task)
        if not task.cancelled() and (problem := task.exception()) is not None:
            logger.info("the client did not go along: %s", problem)

    async def ask(self, method: str, params: Any) -> Any:
        """The client's answer. Raises what the client answers as an error, or TimeoutError."""
        return await self.protocol.send_request_async(method, params)

    def note(
        self,
        sentence: str,
        kind: types.MessageType = types.MessageType.Info,
        *,
        again: bool = False,
    ) -> None:
        """Tells the user one sentence: once, or each time where it answers an action."""
        if again or sentence not in self._noted:
            self._noted.add(sentence)
            self.window_show_message(types.ShowMessageParams(kind, sentence))

    async def run_command(self, params: types.ExecuteCommandParams) -> dict[str, Any]:
        return await execute_command(self, params)

    def forget_lenses(self, uri: str) -> None:
        self.lens_cache.pop(uri, None)

    def lenses_changed(self) -> None:
        self.refresh.request()

    # What the session tells

    def sites_changed(self, document: str) -> None:
        self.refresh.sites_changed(document)
        diagnostics.publish(self, document)

    def job_changed(self, job: Job) -> None:
        self.progress_book.job_changed(job)
        send_status(self, job)
        self.lenses_changed()
        unseen = job.status.state == "failed" and self.documents.opened(job.key.document) is None
        if unseen and job.status.detail:
            self.note(f"{job.title}: {job.status.detail}", types.MessageType.Warning)
        if self._ticker is None:
            self._ticker = asyncio.get_running_loop().create_task(self._tick())

    def result_changed(self, document: str, site: str) -> None:
        diagnostics.publish(self, document)
        self.lenses_changed()

    async def _tick(self) -> None:
        while self.session.runner.all_active():
            await asyncio.sleep(_TICK)
            self.progress_book.tick()
            if any(job.status.state == "generating" for job in self.session.runner.all_active()):
                self.lenses_changed()
        self._ticker = None

    # Life

    def watch_parent(self, process_id: int | None) -> None:
        """Ends the server when the client's process is gone."""
        if process_id is not None and self._parent is None:
            self._parent = ParentWatch(process_id, lambda: self.stop(1))
            self._parent.start()

    def stop(self, exit_code: int) -> None:
        """The first reason counts: the stream ends right after an orderly `exit`, too."""
        if not self._stopped.is_set():
            self.exit_code = exit_code
            self._stopped.set()

    def report_server_error(self, error: Exception, source: Any) -> None:
        """pygls shows a message for each failing notification. One per kind is enough for a user;
        the log has them all."""
        logger.error("%s: %r", getattr(source, "__name__", source), error)
        kind = f"{getattr(source, '__name__', source)}/{type(error).__name__}"
        if kind in self._noted or getattr(source, "__name__", "") == "FeatureRequestError":
            return
        self._noted.add(kind)
        self.window_show_message(
            types.ShowMessageParams(
                types.MessageType.Error,
                f"musacoder-lsp met an internal error ({type(error).__name__}); see its log.",
            )
        )

    async def serve(self, read_fd: int, write_fd: int) -> int:
        """Serves one client until `exit`, the end of its stream, or its death; returns the exit
        code: 0 only after `shutdown` and `exit`."""
        loop = asyncio.get_running_loop()
        writer = ProtocolWriter(write_fd, lambda: self.stop(1))
        self.protocol.set_writer(writer)
        for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
            loop.add_signal_handler(number, self.stop, 1)
        reader = loop.create_task(self._read(read_fd))
        await self._stopped.wait()
        reader.cancel()
        if self._parent is not None:
            self._parent.close()
        await self.end_session()
        await writer.drain(_LAST_WORDS)
        writer.close()
        return self.exit_code

    async def _read(self, fd: int) -> None:
        stream = await open_reader(fd)
        while True:
            try:
                body = await read_message(stream)
            except ValueError as problem:
                logger.error("the client's stream cannot be read: %s", problem)
                body = None
            if body is None:
                self.stop(1)
                return
            self.protocol.receive(body)


def _never_called() -> None:
    """Registered so that pygls advertises the commands; `execute_command` runs them."""


class _ClientLog(logging.Handler):
    """Sends the log to the client. Editors file every line of stderr as an error."""

    _KINDS = (
        (logging.ERROR, types.MessageType.Error),
        (logging.WARNING, types.MessageType.Warning),
        (logging.INFO, types.MessageType.Info),
    )

    def __init__(self, server: KernelServer) -> None:
        super().__init__(logging.INFO)
        self._server = server

    def emit(self, record: logging.LogRecord) -> None:
        try:
            loop = asyncio.get_running_loop()
        except RuntimeError:
            return
        kind = next(
            (k for level, k in self._KINDS if record.levelno >= level), types.MessageType.Log
        )
        loop.call_soon(self._send, types.LogMessageParams(kind, self.format(record)))

    def _send(self, params: types.LogMessageParams) -> None:
        if self._server.protocol._workspace is not None:
            self._server.window_log_message(params)


async def _serve(read_fd: int, write_fd: int, makers: Makers) -> int:
    server = KernelServer(makers)
    root = logging.getLogger("musacoder_lsp")
    root.setLevel(logging.INFO)
    root.addHandler(_ClientLog(server))
    # pygls logs each message and each cancel; nobody wants to read those.
    logging.getLogger("pygls").setLevel(logging.CRITICAL)
    logging.lastResort = None
    return await server.serve(read_fd, write_fd)


def _spare_the_collector() -> None:
    """An edit of a long file makes thousands of objects, none of them part of a cycle, and each few
    thousand of them start a search for cycles; a search through everything takes tens of
    milliseconds, in the middle of a keystroke. So what is imported is never searched, and the rest
    seldom."""
    gc.collect()
    gc.freeze()
    gc.set_threshold(20_000, 20, 100)


def run(read_fd: int, write_fd: int, makers: Makers = REAL) -> int:
    """Runs the server over two file descriptors and returns its exit code."""
    # The workspace may vanish; relative paths must not depend on where an editor was started.
    os.chdir(Path.home() if Path.home().is_dir() else "/")
    _spare_the_collector()
    with asyncio.Runner() as runner:
        return runner.run(_serve(read_fd, write_fd, makers))

"""The server's end of the analysis child: asks, restarts it when it died, and never blocks."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import sys
from dataclasses import dataclass, field

from musacoder_lsp.analysis.frames import HEAD_SIZE, body_size, decode, encode
from musacoder_lsp.analysis.messages import Answer, Ask, Changed, Closed, Opened, Question
from musacoder_lsp.sites.document import Edit, apply_edits

logger = logging.getLogger(__name__)

# A question that takes longer has met a defect; the child is replaced.
_PATIENCE = 30.0
# How often a child may die in a row before the questions fail instead.
_ATTEMPTS = 2


class AnalysisFailed(Exception):
    """One sentence that says what could not be analysed."""


@dataclass(slots=True)
class _Known:
    """What the child must be told of a document after a restart. Edits are applied lazily, because
    most documents never see a restart."""

    opened: Opened
    version: int
    edits: list[Edit] = field(default_factory=list)
    # How many of `edits` the running child has not been told of.
    untold: int = 0


# Above this many the text is brought up to date, so that memory stays bounded.
_MAX_EDITS = 1024


class AnalysisClient:
    """Documents are told in order; questions are answered in order. Started at the first need."""

    def __init__(self) -> None:
        self._documents: dict[str, _Known] = {}
        self._process: asyncio.subprocess.Process | None = None
        self._reader: asyncio.Task[None] | None = None
        self._pending: dict[int, asyncio.Future[Answer]] = {}
        self._number = 0
        self._starting = asyncio.Lock()
        self._closed = False

    @property
    def pid(self) -> int | None:
        return self._process.pid if self._process else None

    def open(self, document: str, path: str | None, version: int, text: str) -> None:
        message = Opened(document, path, version, text)
        self._documents[document] = _Known(message, version)
        self._tell(message)

    def change(self, document: str, version: int, edits: tuple[Edit, ...]) -> None:
        known = self._documents.get(document)
        if known is None:
            return
        known.version = version
        known.edits.extend(edits)
        known.untold += len(edits)
        if len(known.edits) > _MAX_EDITS:
            self._tell_edits(known)
            self._settle(known)

    def close_document(self, document: str) -> None:
        if self._documents.pop(document, None) is not None:
            self._tell(Closed(document))

    async def ask(self, question: Question) -> Answer:
        """Raises AnalysisFailed."""
        for _ in range(_ATTEMPTS):
            await self._ensure_started()
            # Not at each keystroke: that would wake the child while the user types.
            for known in self._documents.values():
                self._tell_edits(known)
            self._number += 1
            number = self._number
            answer: asyncio.Future[Answer] = asyncio.get_running_loop().create_future()
            self._pending[number] = answer
            self._send(Ask(number, question))
            try:
                found = await asyncio.wait_for(asyncio.shield(answer), _PATIENCE)
            except TimeoutError:
                logger.warning("the analysis child did not answer for %g s", _PATIENCE)
                await self._stop()
                continue
            except ConnectionError:
                continue
            finally:
                self._pending.pop(number, None)
                answer.cancel()
            if found.error is not None:
                raise AnalysisFailed(found.error)
            return found
        raise AnalysisFailed("The source could not be analysed: the analysis process keeps ending.")

    async def close(self) -> None:
        self._closed = True
        await self._stop()

    def _tell_edits(self, known: _Known) -> None:
        if known.untold:
            edits = tuple(known.edits[-known.untold :])
            known.untold = 0
            self._tell(Changed(known.opened.document, known.version, edits))

    def _settle(self, known: _Known) -> None:
        text = apply_edits(known.opened.text, known.edits)
        known.opened = Opened(known.opened.document, known.opened.path, known.version, text)
        known.edits.clear()

    def _tell(self, message: Opened | Changed | Closed) -> None:
        if self._process is not None:
            self._send(message)

    def _send(self, message: object) -> None:
        assert self._process is not None and self._process.stdin is not None
        # A dead child is noticed by the reader, which fails what is pending.
        with contextlib.suppress(ConnectionError, RuntimeError):
            self._process.stdin.write(encode(message))

    async def _ensure_started(self) -> None:
        async with self._starting:
            if self._process is not None:
                return
            if self._closed:
                raise AnalysisFailed("The server is shutting down.")
            self._process = await asyncio.create_subprocess_exec(
                sys.executable,
                "-P",  # the working folder may hold a module with the name of one of ours
                "-m",
                "musacoder_lsp.analysis.child",
                str(os.getpid()),
                stdin=asyncio.subprocess.PIPE,
                stdout=asyncio.subprocess.PIPE,
                start_new_session=True,
            )
            self._reader = asyncio.create_task(self._read(self._process))
            for known in self._documents.values():
                if known.edits:
                    self._settle(known)
                known.untold = 0
                self._send(known.opened)

    async def _read(self, process: asyncio.subprocess.Process) -> None:
        assert process.stdout is not None
        with contextlib.suppress(asyncio.IncompleteReadError, ConnectionError):
            while True:
                head = await process.stdout.readexactly(HEAD_SIZE)
                message = decode(await process.stdout.readexactly(body_size(head)))
                assert isinstance(message, Answer)
                waiting = self._pending.get(message.number)
                if waiting is not None and not waiting.done():
                    waiting.set_result(message)
        if self._process is process:
            self._process = None
        await process.wait()
        for answer in self._pending.values():
            if not answer.done():
                answer.set_exception(ConnectionError("the analysis child ended"))

    async def _stop(self) -> None:
        process, self._process = self._process, None
        if process is not None:
            with contextlib.suppress(ProcessLookupError):
                process.kill()
            await process.wait()
        if self._reader is not None:
            await asyncio.wait({self._reader})

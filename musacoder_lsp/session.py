"""The server without its protocol: documents, Sites, Jobs, results. Speaks paths and offsets."""

from __future__ import annotations

import asyncio
import logging
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol, cast

from musacoder_verifier.reference import Reference

from musacoder_lsp.analysis.client import AnalysisClient, AnalysisFailed
from musacoder_lsp.analysis.documents import DocumentBook, SiteView, Spot, source_name
from musacoder_lsp.analysis.messages import BuildReference, FindSelection, FindTemplate
from musacoder_lsp.interpreter import NoInterpreter, find_interpreter
from musacoder_lsp.jobs.job import Job, JobKind, JobStatus, SiteKey
from musacoder_lsp.jobs.makers import REAL, Makers
from musacoder_lsp.jobs.results import KnownResult, ResultBook
from musacoder_lsp.jobs.runner import JobRunner
from musacoder_lsp.jobs.store import GeneratedFile
from musacoder_lsp.jobs.watch import GeneratedWatch
from musacoder_lsp.jobs.work import Order, Work, WorkEvents, result_identity, text_digest
from musacoder_lsp.lens import SiteState
from musacoder_lsp.places import FOLDER, Place
from musacoder_lsp.settings import Settings
from musacoder_lsp.sites.document import Edit, read_source
from musacoder_lsp.sites.site import Refused, Site

logger = logging.getLogger(__name__)

# How often other windows' results are looked for, in seconds.
_LOOK_ELSEWHERE = 2.0
# How long the end waits for what is still being written, in seconds.
_LAST_WRITES = 0.3


class SessionEvents(Protocol):
    """What the session tells its owner, always on the loop."""

    def sites_changed(self, document: str) -> None: ...
    def job_changed(self, job: Job) -> None: ...
    def result_changed(self, document: str, site: str) -> None: ...
    def note(self, sentence: str) -> None: ...


class Refusal(Exception):
    """Why a request cannot become a Job; one sentence."""


@dataclass(frozen=True, slots=True)
class Folder:
    uri: str
    path: Path


class Session:
    def __init__(
        self,
        events: SessionEvents,
        makers: Makers = REAL,
        environment: Mapping[str, str] | None = None,
        slots: int = 2,
    ) -> None:
        self._events = events
        self._environment = os.environ if environment is None else environment
        self._loop = asyncio.get_running_loop()
        self._orders: dict[str, Order] = {}
        self._problems: dict[SiteKey, tuple[str, str]] = {}
        self._background: set[asyncio.Task[None]] = set()
        self._poller: asyncio.Task[None] | None = None
        self.folders: tuple[Folder, ...] = ()
        self.settings: dict[str, Settings] = {}
        self.default_settings = Settings()
        self.analysis = AnalysisClient()
        self.documents = DocumentBook(self.analysis, self._sites_found)
        self.results = ResultBook(events.note)
        self.runner = JobRunner(self._execute, self._job_changed, slots)
        self.watch = GeneratedWatch(self._loop, self._file_changed)
        self._work = Work(
            makers,
            self.analysis,
            self.results,
            WorkEvents(
                self.runner.update, self._site_found, self._result_kept, self._wrote, events.note
            ),
            self._loop.time,
            self._environment,
        )

    # Folders and settings

    def folder_of(self, path: str | None) -> Folder | None:
        """The innermost workspace folder that holds a file."""
        if path is None:
            return self.folders[0] if len(self.folders) == 1 else None
        real = Path(os.path.realpath(path))
        inside = [folder for folder in self.folders if real.is_relative_to(folder.path)]
        return max(inside, key=lambda folder: len(folder.path.parts), default=None)

    def settings_of(self, path: str | None) -> Settings:
        folder = self.folder_of(path)
        if folder is None:
            return self.default_settings
        return self.settings.get(folder.uri, self.default_settings)

    async def settings_changed(self) -> None:
        """Another backend has other results; another interpreter makes figures stale."""
        for document in self.documents.names():
            await self._load(document)

    # Documents

    def open(self, document: str, path: str | None, version: int, text: str) -> SiteView:
        view = self.documents.open(document, path, version, text)
        self._spawn(self._load(document))
        if self._poller is None:
            self._poller = self._loop.create_task(self._look_elsewhere())
        return view

    def change(self, document: str, version: int, edits: Sequence[Edit]) -> None:
        self.documents.change(document, version, edits)

    def close(self, document: str) -> None:
        view = self.documents.view(document)
        self.documents.close(document)
        if view is not None:
            self.results.forget(view.source)
        for key in [key for key in self._problems if key.document == document]:
            del self._problems[key]

    def saved(self, document: str, path: str | None, text: str) -> None:
        """The user saved an open file: if it is one that we wrote, it is verified again."""
        if path is not None and not self._is_source(document):
            self._spawn(self._check_generated(path, text, "file saved"))
        for name in self.documents.names():
            self._spawn(self._recheck(name))

    def state(self, document: str, spot: Spot) -> SiteState:
        """All that decides the lens and the report of a Site."""
        view = self.documents.view(document)
        key = SiteKey(document, spot.site.id)
        result = None
        if view is not None:
            result = self.results.find(view.source, spot.site.id, spot.site.fingerprint)
        fingerprint, problem = self._problems.get(key, ("", None))
        if fingerprint != spot.site.fingerprint:
            problem = None
        return SiteState(
            site=spot.site,
            job=self.runner.active(key),
            trajectory=result.trajectory if result else None,
            stale=self._stale(view.path, spot.site, result) if view and result else None,
            problem=problem,
        )

    def spots_with_results(self, document: str) -> list[Spot]:
        """Those of a document's Sites that something is known of: few among thousands."""
        view = self.documents.view(document)
        if view is None:
            return []
        known = set(self.results.sites(view.source))
        return [spot for spot in view.current() if spot.site.id in known] if known else []

    def _stale(self, path: str | None, site: Site, result: KnownResult) -> str | None:
        if result.fingerprint != site.fingerprint:
            return "the source has changed"
        if result.outdated is not None:
            return result.outdated
        settings, folder = self.settings_of(path), self.folder_of(path)
        try:
            python = find_interpreter(
                settings.python, folder.path if folder else None, self._environment
            )
        except NoInterpreter:
            return "its interpreter is gone"
        if result.identity != result_identity(settings, python.path):
            return "interpreter, policy or verifier have changed"
        return None

    # Jobs

    def submit(
        self, document: str, site: str, kind: JobKind, cause: str = "asked by the user"
    ) -> Job:
        """Enqueues work on a Site of an open document. Raises Refusal."""
        view = self.documents.view(document)
        if view is None:
            raise Refusal("The file is not open in the editor; open it and try again.")
        spot = view.spot(site)
        if spot is None:
            raise Refusal("That code is no longer in the file; look at the lenses again.")
        order = self._order(document, view.path, _place(spot), repair=kind == "repair")
        self._problems.pop(SiteKey(document, site), None)
        return self._submit(document, site, spot.site.name, kind, cause, order)

    async def submit_selection(self, document: str, start: int, end: int) -> Job:
        """Makes a Site of a selection, or of the operation at an empty one, and enqueues it.
        Raises Refusal."""
        view = self.documents.view(document)
        if view is None:
            raise Refusal("The file is not open in the editor; open it and try again.")
        version = view.version
        try:
            answer = await self.analysis.ask(FindSelection(document, start, end))
        except AnalysisFailed as problem:
            raise Refusal(str(problem)) from problem
        if isinstance(answer.result, Refused):
            raise Refusal(answer.result.reason)
        assert isinstance(answer.result, Site)
        if view.version != version or answer.version != version:
            raise Refusal("The text changed meanwhile; select again.")
        if view.spot(answer.result.id) is None:
            view.pin(answer.result)
        return self.submit(document, answer.result.id, "generate")

    async def template(self, document: str, spot: Spot) -> tuple[int, str] | None:
        """Offset and text of the comment that a Site still needs. Raises Refusal."""
        view = self.documents.view(document)
        if view is None:
            return None
        version = view.version
        try:
            answer = await self.analysis.ask(FindTemplate(document, _place(spot)))
        except AnalysisFailed as problem:
            raise Refusal(str(problem)) from problem
        if answer.result is None or not version == answer.version == view.version:
            return None
        return cast(tuple[int, str], answer.result)

    def cancel(self, job_id: str) -> bool:
        return self.runner.cancel(job_id)

    def _order(
        self,
        document: str,
        path: str | None,
        site: str | tuple[int, int],
        *,
        repair: bool = False,
        edited: GeneratedFile | None = None,
        edited_text: str = "",
    ) -> Order:
        folder = self.folder_of(path)
        return Order(
            document=document,
            source=source_name(document, path),
            path=path,
            folder=folder.path if folder else None,
            roots=tuple(item.path for item in self.folders),
            settings=self.settings_of(path),
            site=site,
            repair=repair,
            edited=edited,
            edited_text=edited_text,
        )

    def _submit(
        self, document: str, site: str, title: str, kind: JobKind, cause: str, order: Order
    ) -> Job:
        status = JobStatus("queued", self._loop.time())
        job = Job(SiteKey(document, site), kind, cause, status, title)
        self._orders[job.id] = order
        return self.runner.submit(job)

    async def _execute(self, job: Job) -> JobStatus:
        return await self._work.run(job, self._orders[job.id])

    def _job_changed(self, job: Job) -> None:
        if job.ended and (order := self._orders.pop(job.id, None)) is not None:
            view = self.documents.view(job.key.document)
            spot = view.spot(job.key.site) if view else None
            state = self.state(job.key.document, spot) if spot else None
            known = state is not None and state.trajectory is not None and state.stale is None
            if job.status.state == "failed" and spot is not None and not known:
                self._problems[job.key] = (spot.site.fingerprint, job.status.detail)
            self._spawn(
                self.results.save_job(
                    order.folder,
                    job.id,
                    order.source,
                    job.key.site,
                    job.kind,
                    job.cause,
                    job.status.state,
                    job.status.detail,
                )
            )
        self._events.job_changed(job)

    # What comes back

    def _sites_found(self, document: str) -> None:
        self._events.sites_changed(document)

    def _site_found(self, order: Order, site: Site) -> None:
        view = self.documents.view(order.document)
        if view is not None and site.kind in ("call", "selection"):
            view.pin(site)

    def _result_kept(self, order: Order, result: KnownResult) -> None:
        self._events.result_changed(order.document, result.site)

    def _wrote(self, order: Order, place: Place) -> None:
        self.watch.add(place.folder)

    async def _load(self, document: str) -> None:
        view = self.documents.view(document)
        if view is None:
            return
        source, folder = view.source, self.folder_of(view.path)
        backend = self.settings_of(view.path).backend
        await self.results.load(folder.path if folder else None, source, backend)
        for site in self.results.sites(source):
            self._events.result_changed(document, site)
            if folder is not None and (folder.path / FOLDER).is_dir():
                self.watch.add(folder.path / FOLDER)
        await self.documents.first_analysis(document, 60.0)
        await self._recheck(document)

    async def _recheck(self, document: str) -> None:
        """Finds results that are stale for another reason than their own text: what the Reference
        imports has changed, too."""
        view = self.documents.view(document)
        if view is None or not view.known:
            return
        source = view.source
        roots = tuple(str(folder.path) for folder in self.folders)
        for spot in self.spots_with_results(document):
            result = self.results.find(source, spot.site.id, spot.site.fingerprint)
            if result is None or result.fingerprint != spot.site.fingerprint:
                continue
            try:
                answer = await self.analysis.ask(BuildReference(document, _place(spot), roots))
            except AnalysisFailed:
                continue
            if not isinstance(answer.result, tuple) or answer.version != view.version:
                continue
            built = answer.result[1]
            same = isinstance(built, Reference) and built.key == result.reference.key
            why = None if same else "what it uses has changed"
            if self.results.mark_outdated(source, result, why):
                self._events.result_changed(document, spot.site.id)

    async def _look_elsewhere(self) -> None:
        while True:
            await asyncio.sleep(_LOOK_ELSEWHERE)
            if await self.results.changed_elsewhere():
                for document in self.documents.names():
                    await self._load(document)

    # Generated files that someone edits

    def _file_changed(self, path: str) -> None:
        self._spawn(self._check_changed_file(path))

    async def _check_changed_file(self, path: str) -> None:
        try:
            source = await asyncio.to_thread(read_source, Path(path))
        except OSError:
            return
        if not source.binary:
            await self._check_generated(path, source.text, "file changed on disk")

    async def _check_generated(self, path: str, text: str, cause: str) -> None:
        """Verifies an edited file again, only if this user's store created it: what came with a
        clone is never run without a click."""
        folders: list[Path | None] = [*(folder.path for folder in self.folders), None]
        for folder in folders:
            file = await self.results.generated(folder, path)
            if file is None:
                continue
            if file.digest != text_digest(text):
                self._verify_edited(file, text, cause)
            return

    def _verify_edited(self, file: GeneratedFile, text: str, cause: str) -> None:
        document = next(
            (
                name
                for name in self.documents.names()
                if (view := self.documents.view(name)) and view.source == file.source_path
            ),
            file.source_path,
        )
        active = self.runner.active(SiteKey(document, file.site))
        running = self._orders.get(active.id) if active is not None else None
        if running is not None and running.edited is not None and running.edited_text == text:
            return
        path = file.source_path if Path(file.source_path).is_absolute() else None
        order = self._order(document, path, file.site, edited=file, edited_text=text)
        self._submit(document, file.site, Path(file.path).name, "verify", cause, order)

    def _is_source(self, document: str) -> bool:
        view = self.documents.view(document)
        return (
            view is not None
            and view.path is not None
            and f"/{FOLDER}/" not in view.path
            and bool(view.spots)
        )

    # End

    async def shutdown(self) -> None:
        """Ends every Job and every process. Safe to call twice."""
        self.watch.close()
        if self._poller is not None:
            self._poller.cancel()
        await self.runner.close()
        await self.documents.shutdown()
        await asyncio.gather(self._work.verifiers.close(), self.analysis.close())
        if self._background:
            # The last lines of the jobs' history.
            await asyncio.wait(set(self._background), timeout=_LAST_WRITES)
        for task in list(self._background):
            task.cancel()
        await self.results.close()

    def _spawn(self, work: object) -> None:
        task: asyncio.Task[None] = self._loop.create_task(work)  # type: ignore[arg-type]
        self._background.add(task)
        task.add_done_callback(self._settled)

    def _settled(self, task: asyncio.Task[None]) -> None:
        self._background.discard(task)
        if not task.cancelled() and (problem := task.exception()) is not None:
            logger.error("background work failed", exc_info=problem)


def _place(spot: Spot) -> str | tuple[int, int]:
    """How the analysis finds a Site again: those that carry no lens of their own by their range."""
    if spot.site.kind == "selection":
        return spot.start, spot.end
    return (spot.start, spot.start) if spot.site.kind == "call" else spot.site.id

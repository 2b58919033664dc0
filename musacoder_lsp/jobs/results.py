"""What is known of each Site: the newest results in memory, all of them in the store."""

from __future__ import annotations

import asyncio
import logging
import sqlite3
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TypeVar

from musacoder_verifier.reference import Reference

from musacoder_lsp.assistant import Trajectory
from musacoder_lsp.jobs import trajectory_json
from musacoder_lsp.jobs.store import GeneratedFile, Store, StoredResult
from musacoder_lsp.places import state_file

logger = logging.getLogger(__name__)

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class KnownResult:
    """One verified state of a Site. `outdated` is why it does not hold any more although the Site's
    own text is the same, such as a changed import."""

    site: str
    backend: str
    fingerprint: str
    identity: str
    reference: Reference
    trajectory: Trajectory
    saved: float
    outdated: str | None = None


class ResultBook:
    """Results by document. SQLite runs on one thread of its own, because another window may hold
    the file; what the editor asks for comes from memory.

    `on_note` receives a sentence when results cannot be kept, once per store.
    """

    def __init__(self, on_note: Callable[[str], None]) -> None:
        self._on_note = on_note
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="store")
        self._stores: dict[Path, Store] = {}
        self._noted: set[str] = set()
        self._known: dict[str, dict[str, list[KnownResult]]] = {}
        self._seen: dict[Path, int] = {}
        self._closed = False

    async def load(self, folder: Path | None, source: str, backend: str) -> None:
        """Reads all results of one document. `source` is its path, or its URI where it has none."""
        none: list[StoredResult] = []
        rows = await self._on_store(folder, lambda store: store.results(source, backend), none)
        by_site: dict[str, list[KnownResult]] = {}
        for row in rows:
            try:
                known = _known(row)
            except ValueError as problem:
                logger.info("a stored result of %s is left out: %s", source, problem)
                continue
            by_site.setdefault(known.site, []).append(known)
        # What could not be stored must not be forgotten either.
        for site, kept in self._known.get(source, {}).items():
            stored = {(item.fingerprint, item.saved) for item in by_site.get(site, [])}
            unsaved = [item for item in kept if (item.fingerprint, item.saved) not in stored]
            merged = [*unsaved, *by_site.get(site, [])]
            by_site[site] = sorted(merged, key=lambda item: -item.saved)
        self._known[source] = by_site

    def forget(self, source: str) -> None:
        self._known.pop(source, None)

    def find(self, source: str, site: str, fingerprint: str) -> KnownResult | None:
        """The newest result of exactly this content, else the newest of the Site."""
        known = self._known.get(source, {}).get(site, [])
        exact = next((item for item in known if item.fingerprint == fingerprint), None)
        return exact or (known[0] if known else None)

    def sites(self, source: str) -> list[str]:
        return list(self._known.get(source, {}))

    def mark_outdated(self, source: str, result: KnownResult, why: str | None) -> bool:
        """True when this changes what is shown."""
        known = self._known.get(source, {}).get(result.site, [])
        if result not in known or result.outdated == why:
            return False
        known[known.index(result)] = replace(result, outdated=why)
        return True

    async def save(self, folder: Path | None, source: str, result: KnownResult) -> None:
        known = self._known.setdefault(source, {}).setdefault(result.site, [])
        known[:] = [item for item in known if item.fingerprint != result.fingerprint]
        known.insert(0, result)
        row = StoredResult(
            path=source,
            site=result.site,
            backend=result.backend,
            fingerprint=result.fingerprint,
            identity=result.identity,
            reference=result.reference,
            trajectory=trajectory_json.to_json(result.trajectory),
            saved=result.saved,
        )
        await self._on_store(folder, lambda store: store.save_result(row), None)

    async def save_generated(self, folder: Path | None, file: GeneratedFile) -> None:
        await self._on_store(folder, lambda store: store.save_generated(file), None)

    async def generated(self, folder: Path | None, path: str) -> GeneratedFile | None:
        return await self._on_store(folder, lambda store: store.generated(path), None)

    async def save_job(
        self,
        folder: Path | None,
        job_id: str,
        source: str,
        site: str,
        kind: str,
        cause: str,
        state: str,
        detail: str,
    ) -> None:
        await self._on_store(
            folder,
            lambda store: store.save_job(job_id, source, site, kind, cause, state, detail),
            None,
        )

    async def changed_elsewhere(self) -> list[Path]:
        """Store files that another window has written since the last call."""
        changed = []
        for file, store in list(self._stores.items()):
            number = await self._call(store.changes)
            if number is not None and self._seen.get(file, number) != number:
                changed.append(file)
            if number is not None:
                self._seen[file] = number
        return changed

    async def close(self) -> None:
        """Waits for what is being written. Later calls keep to the memory."""
        if self._closed:
            return
        self._closed = True
        for store in self._stores.values():
            await self._call(store.close)
        self._stores.clear()
        self._thread.shutdown(wait=True)

    async def _on_store(self, folder: Path | None, action: Callable[[Store], T], otherwise: T) -> T:
        if self._closed:
            return otherwise
        file = state_file(folder)

        def run() -> T:
            store = self._stores.get(file)
            if store is None:
                store = self._stores[file] = Store(file)
            return action(store)

        try:
            result = await asyncio.get_running_loop().run_in_executor(self._thread, run)
        except sqlite3.Error as problem:
            self._note(f"Results could not be kept in {file}: {problem}.")
            return otherwise
        store = self._stores.get(file)
        if store is not None and store.note is not None:
            self._note(store.note)
        return result

    async def _call(self, action: Callable[[], T]) -> T | None:
        try:
            return await asyncio.get_running_loop().run_in_executor(self._thread, action)
        except sqlite3.Error as problem:
            logger.warning("the store failed: %s", problem)
            return None

    def _note(self, sentence: str) -> None:
        if sentence not in self._noted:
            self._noted.add(sentence)
            self._on_note(sentence)


def _known(row: StoredResult) -> KnownResult:
    return KnownResult(
        site=row.site,
        backend=row.backend,
        fingerprint=row.fingerprint,
        identity=row.identity,
        reference=row.reference,
        trajectory=trajectory_json.from_json(row.trajectory),
        saved=row.saved,
    )

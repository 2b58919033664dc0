"""Stage 2: compile what the Candidate asked for, in the fast lane where it can, else in stock; the
native form has a way of its own."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Literal

from musacoder_verifier import diagnostics, tools
from musacoder_verifier.artefacts import ArtefactCache, content_key
from musacoder_verifier.backends import registry
from musacoder_verifier.backends.base import Backend
from musacoder_verifier.build_request import Artefact, BuildRequest
from musacoder_verifier.candidate import Candidate
from musacoder_verifier.kernel_resources import KernelResources, ptxas_report
from musacoder_verifier.lanes import fast, native, stock, vocabulary
from musacoder_verifier.lanes.device import DeviceCompiler, device_compiler
from musacoder_verifier.lanes.fast import LaneResult
from musacoder_verifier.lanes.prepare import (
    Prepared,
    PrepareError,
    abi_flag,
    language_standard,
    prepare,
    sources_digest,
)
from musacoder_verifier.stages import compile_faults
from musacoder_verifier.toolchain import (
    Compiler,
    ToolchainError,
    host_compiler,
    missing_python_header,
)
from musacoder_verifier.verdict import CompileReport, Diagnostic, Failure
from musacoder_verifier.worker import WorkerInfo

Lane = Literal["auto", "fast", "stock"]
_Taken = Literal["fast", "stock", "native"]

# Preparing is no fault of the Candidate's: it has a limit of its own.
_PREPARE_SECONDS = 600.0
_PARALLEL = 2


@dataclass(frozen=True, slots=True)
class CompileOutcome:
    """`artefacts` in the order of the requests; empty when `failure` is set."""

    report: CompileReport
    artefacts: tuple[Artefact, ...]
    failure: Failure | None


@dataclass(frozen=True, slots=True)
class _Built:
    """What became of one request."""

    lane: _Taken
    artefact: Artefact | None
    cached: bool = False
    diagnostics: tuple[Diagnostic, ...] = ()
    reason: str | None = None
    failure: Failure | None = None
    resources: tuple[KernelResources, ...] = ()


async def compile_requests(
    requests: Sequence[BuildRequest],
    *,
    backend: Backend | str,
    worker_info: WorkerInfo,
    cache_dir: Path,
    candidate: Candidate,
    timeout: float,
    lane: Lane = "auto",
    compiler: str | None = None,
) -> CompileOutcome:
    """Compiles all requests of a Candidate within `timeout` seconds each; never raises for bad
    sources or a bad machine. `compiler` is the user's setting, if any."""
    started = time.monotonic()
    chosen = registry.backend(backend) if isinstance(backend, str) else backend
    if not requests:
        return CompileOutcome(CompileReport("none", 0.0), (), None)
    try:
        host = await asyncio.to_thread(host_compiler, compiler)
    except ToolchainError as error:
        return _refused(str(error), started)
    missing = missing_python_header(
        worker_info.python, worker_info.python_version, worker_info.python_include_dirs
    )
    if missing is not None:
        return _refused(missing, started)
    standard = await asyncio.to_thread(language_standard, worker_info)
    flags = (*chosen.host_flags, standard)
    device = await asyncio.to_thread(device_compiler, chosen, worker_info, host)
    job = _Job(chosen, worker_info, host, device, flags, cache_dir, candidate, timeout, lane)
    turn = asyncio.Semaphore(_PARALLEL)

    async def one(request: BuildRequest) -> _Built:
        async with turn:
            return await job.build(request)

    built = await asyncio.gather(*map(one, requests))
    failure = next((item.failure for item in built if item.failure is not None), None)
    report = CompileReport(
        # The slowest of them, which is what the seconds are about.
        lane=max((item.lane for item in built), key=("native", "fast", "stock").index),
        seconds=time.monotonic() - started,
        cached=all(item.cached for item in built),
        flags=(*flags, *chosen.device_flags),
        resources=tuple(entry for item in built for entry in item.resources),
        diagnostics=tuple(entry for item in built for entry in item.diagnostics),
        lane_reason=next((item.reason for item in built if item.reason is not None), None),
    )
    artefacts = tuple(item.artefact for item in built if item.artefact is not None)
    return CompileOutcome(report, () if failure else artefacts, failure)


def _refused(sentence: str, started: float) -> CompileOutcome:
    report = CompileReport("none", time.monotonic() - started)
    return CompileOutcome(report, (), Failure("infra_error", "compile", sentence))


@dataclass(frozen=True, slots=True)
class _Job:
    backend: Backend
    info: WorkerInfo
    compiler: Compiler
    device: DeviceCompiler | None
    flags: tuple[str, ...]
    cache_dir: Path
    candidate: Candidate
    timeout: float
    lane: Lane

    async def build(self, request: BuildRequest) -> _Built:
        device = next((item for item in request.sources if item.language != "cpp"), None)
        if device is not None and not self.backend.device_flags:
            failure = Failure(
                "compile_error", "compile",
                f"the extension {request.name} has device sources, which the backend "
                f"{self.backend.name} does not compile",
                file=self.candidate.path, line=device.line,
            )  # fmt: skip
            return _Built("fast", None, failure=failure)
        if device is not None:
            problem = self._device_problem()
            if problem is not None:
                return _Built("fast", None, failure=Failure("infra_error", "compile", problem))
        try:
            if request.launches is not None:
                return await self._native(request)
            return await self._build(request)
        except OSError as error:
            return _Built("fast", None, failure=compile_faults.of_error(error, self.cache_dir))
        except (tools.ToolError, ToolchainError) as error:
            return _Built("fast", None, failure=Failure("infra_error", "compile", str(error)))

    def _device_problem(self) -> str | None:
        """One sentence where device sources cannot be compiled here."""
        if self.device is None:
            return self.backend.no_toolkit()
        return self.device.toolkit.mismatch(self.info.cuda_version)

    async def _build(self, request: BuildRequest) -> _Built:
        reason = fast.unsuitable(request, self.info.torch_version)
        if self.lane == "stock":
            reason = "the stock lane was asked for"
        elif reason is not None and self.lane == "fast":
            failure = Failure("infra_error", "compile", f"the fast lane cannot take it: {reason}")
            return _Built("fast", None, failure=failure)
        if reason is not None:
            return await self._stock(request, reason)
        return await self._fast(request)

    async def _fast(self, request: BuildRequest) -> _Built:
        native_flags = (*self.flags, "-fPIC", abi_flag(self.info))
        try:
            prepared = await prepare(
                self.info, self.compiler, native_flags, self.cache_dir, _PREPARE_SECONDS,
                self.device.toolkit if self.device is not None else None,
            )  # fmt: skip
        except PrepareError as error:
            if self.lane == "fast":
                failure = Failure("infra_error", "compile", str(error), error.detail[-4000:])
                return _Built("fast", None, failure=failure)
            return await self._stock(request, str(error))
        key = content_key("fast", request.key, native_flags, prepared.key, self._device_key())
        cache = ArtefactCache(self.cache_dir / "artefacts")
        # A request that the fast lane lacks something for is sent on at once the next time.
        cached = await asyncio.to_thread(self._cached, cache, key, request, "fast", prepared)
        if cached is not None:
            if cached.reason is not None and self.lane == "auto":
                return await self._stock(request, cached.reason)
            if cached.reason is None:
                return cached
        for last in (False, True):
            with cache.building() as folder:
                result = await fast.compile_request(
                    request, prepared, self.compiler, native_flags, folder, self.timeout,
                    self.device,
                )  # fmt: skip
                if result.library is not None:
                    return await self._keep(cache, key, request, "fast", result, folder, prepared)
            if result.timed_out:
                return self._timed_out("fast", request)
            if not compile_faults.cut_short(result):
                break
            # A compiler that somebody killed says nothing about the source.
            if last:
                return self._compile_error("fast", request, result, None)
        lacking = await self._lacking(request, result, prepared)
        if not isinstance(lacking, str):
            result = replace(result, messages=lacking)
        elif self.lane == "auto":
            await asyncio.to_thread(_publish_reason, cache, key, lacking)
            return await self._stock(request, lacking)
        return self._compile_error("fast", request, result, None)

    async def _native(self, request: BuildRequest) -> _Built:
        device = self.device
        nvrtc = await asyncio.to_thread(native.find, device) if device is not None else None
        if device is None or nvrtc is None:
            failure = Failure("infra_error", "compile", native.missing())
            return _Built("native", None, failure=failure)
        native_flags = (*self.flags, "-fPIC", abi_flag(self.info))
        try:
            prepared = await prepare(
                self.info, self.compiler, native_flags, self.cache_dir, _PREPARE_SECONDS,
                device.toolkit,
            )  # fmt: skip
        except PrepareError as error:
            failure = Failure("infra_error", "compile", str(error), error.detail[-4000:])
            return _Built("native", None, failure=failure)
        # The image depends on no torch, and the table on the image alone.
        key = content_key("native", request.key, native.options(request, device), nvrtc.identity)
        cache = ArtefactCache(self.cache_dir / "artefacts")
        cached = await asyncio.to_thread(self._cached, cache, key, request, "native", prepared)
        if cached is not None:
            return cached
        with cache.building() as folder:
            result = await native.compile_request(request, nvrtc, device, folder, self.timeout)
            if result.library is not None:
                return await self._keep(cache, key, request, "native", result, folder, prepared)
        if result.timed_out:
            return self._timed_out("native", request)
        return self._compile_error("native", request, result, None)

    async def _lacking(
        self, request: BuildRequest, result: LaneResult, prepared: Prepared
    ) -> str | tuple[diagnostics.Message, ...]:
        """What the facade may lack, as a phrase; or the messages that are right whatever the
        headers are. In doubt the real compiler run decides."""
        if not any(message.severity == "error" for message in result.messages):
            return "the fast lane failed without a message"
        try:
            words = await vocabulary.read(
                prepared, self.info, self.compiler, self.flags, self.timeout,
                self.device.toolkit.include_dirs if self.device is not None else (),
            )  # fmt: skip
        except (OSError, tools.ToolError) as error:
            words = None
            reason = str(error)
        if words is not None:
            texts = [source.text for source in request.sources]
            own = vocabulary.independent_of_headers(result.messages, texts, words)
            if own:
                return own
            first = next(item for item in result.messages if item.severity == "error")
            reason = f"the fast lane does not take: {first.text}"
        return reason

    async def _stock(self, request: BuildRequest, reason: str) -> _Built:
        key = content_key(
            "stock", request.key, self.flags, self.compiler.identity, self.info.torch_version,
            self.info.torch_path, self.info.python_version, self.info.extension_suffix,
            sources_digest(), self._device_key(),
        )  # fmt: skip
        cache = ArtefactCache(self.cache_dir / "artefacts")
        cached = await asyncio.to_thread(self._cached, cache, key, request, "stock", None)
        if cached is not None:
            return replace(cached, reason=reason)
        with cache.building() as folder:
            result = await stock.compile_request(
                request, self.info, self.compiler, self.flags, folder, self.timeout, self.device
            )
            if result.library is not None:
                kept = await self._keep(cache, key, request, "stock", result, folder, None)
                return replace(kept, reason=reason)
            if result.timed_out:
                return self._timed_out("stock", request)
            return self._compile_error("stock", request, result, reason)

    def _device_key(self) -> list[str]:
        if self.device is None:
            return []
        return [self.device.toolkit.identity, *self.device.flags, str(self.device.runtime)]

    def _artefact(
        self,
        request: BuildRequest,
        lane: _Taken,
        entry: Path,
        prepared: Prepared | None,
    ) -> Artefact:
        path = entry / _file_name(request)
        return Artefact(
            request_key=request.key,
            path=str(path),
            lane=lane,
            module_name=request.name,
            trampoline=str(prepared.trampoline) if prepared else None,
            shim=str(prepared.shim) if prepared else None,
            launches=native.table(request, path) if lane == "native" else None,
        )

    def _cached(
        self,
        cache: ArtefactCache,
        key: str,
        request: BuildRequest,
        lane: _Taken,
        prepared: Prepared | None,
    ) -> _Built | None:
        entry = cache.find(key)
        if entry is None:
            return None
        with suppress(OSError, ValueError, KeyError, TypeError):
            stored = json.loads((entry / "entry.json").read_text("utf-8"))
            if stored.get("reason") is not None:
                return _Built(lane, None, reason=str(stored["reason"]))
            messages = tuple(_message(item) for item in stored["warnings"])
            if (entry / _file_name(request)).is_file():
                artefact = self._artefact(request, lane, entry, prepared)
                kernels = tuple(KernelResources(**item) for item in stored["resources"])
                shown = self._diagnostics(request, messages)
                return _Built(lane, artefact, True, shown, resources=kernels)
        return None

    async def _keep(
        self,
        cache: ArtefactCache,
        key: str,
        request: BuildRequest,
        lane: _Taken,
        result: LaneResult,
        folder: Path,
        prepared: Prepared | None,
    ) -> _Built:
        assert result.library is not None
        library = result.library
        warnings = [asdict(item) for item in result.messages if item.source is not None]
        resources = ptxas_report(result.output)
        stored = {"warnings": warnings, "resources": [asdict(item) for item in resources]}

        def publish() -> Path:
            kept = folder / "kept"
            kept.mkdir()
            library.rename(kept / _file_name(request))
            (kept / "entry.json").write_text(json.dumps(stored), encoding="utf-8")
            return cache.publish(key, kept)

        entry = await asyncio.to_thread(publish)
        shown = tuple(item for item in result.messages if item.source is not None)
        return _Built(
            lane,
            self._artefact(request, lane, entry, prepared),
            diagnostics=self._diagnostics(request, shown),
            resources=resources,
        )

    def _diagnostics(
        self, request: BuildRequest, messages: Sequence[diagnostics.Message]
    ) -> tuple[Diagnostic, ...]:
        return diagnostics.on_candidate(messages, request.sources, self.candidate.path or "")

    def _compile_error(
        self,
        lane: _Taken,
        request: BuildRequest,
        result: LaneResult,
        reason: str | None,
    ) -> _Built:
        found = self._diagnostics(request, result.messages)
        errors = [item for item in found if item.severity == "error"]
        if not errors:
            lines = result.output.strip().splitlines()
            if lane == "stock":
                # Not the compiler: ninja, torch, or the machine. The last line says which.
                sentence = lines[-1] if lines else "the stock build ended without a message"
            else:
                sentence = "the compiler failed without an error message"
            failure = Failure("infra_error", "compile", sentence, result.output[-4000:])
            return _Built(lane, None, diagnostics=found, reason=reason, failure=failure)
        machine = compile_faults.of_output(result.output, self.cache_dir)
        if machine is not None:
            return _Built(lane, None, reason=reason, failure=machine)
        first = errors[0]
        failure = Failure(
            "compile_error",
            "compile",
            f"the extension {request.name} does not compile: {first.message}",
            diagnostics.condensed(found),
            file=first.file or None,
            line=first.line,
        )
        return _Built(lane, None, diagnostics=found, reason=reason, failure=failure)

    def _timed_out(self, lane: _Taken, request: BuildRequest) -> _Built:
        failure = Failure(
            "timeout",
            "compile",
            f"compiling {request.name} did not finish within {self.timeout:g} s; it was stopped",
        )
        return _Built(lane, None, failure=failure)


def _file_name(request: BuildRequest) -> str:
    return f"{request.name}.{'so' if request.launches is None else 'cubin'}"


def _message(stored: dict[str, object]) -> diagnostics.Message:
    notes = stored.pop("notes")
    assert isinstance(notes, list)
    return diagnostics.Message(**stored, notes=tuple(map(_message, notes)))  # type: ignore[arg-type]


def _publish_reason(cache: ArtefactCache, key: str, reason: str) -> None:
    with suppress(OSError), cache.building() as folder:
        (folder / "entry.json").write_text(json.dumps({"reason": reason}), encoding="utf-8")
        cache.publish(key, folder)

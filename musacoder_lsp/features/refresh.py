"""`workspace/codeLens/refresh`: only where the client knows it, and never in a hurry."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

from lsprotocol import types

if TYPE_CHECKING:
    from musacoder_lsp.server import KernelServer

# Seconds between two refreshes: more often only makes the client busy.
_INTERVAL = 0.25


class LensRefresh:
    def __init__(self, ls: KernelServer) -> None:
        self._ls = ls
        self._timer: asyncio.TimerHandle | None = None
        self._last = float("-inf")
        self._outstanding = False
        self._wanted = False
        self._shown: dict[str, Any] = {}

    def sites_changed(self, document: str) -> None:
        """Asks for a refresh only if the set of Sites differs: moved ones the client asks for
        itself after each edit."""
        view = self._ls.session.documents.view(document)
        if view is None:
            self._shown.pop(document, None)
            return
        shown = [(spot.site.id, spot.site.fingerprint, spot.site.missing) for spot in view.spots]
        if self._shown.get(document) != shown:
            self._shown[document] = shown
            self.request()

    def request(self) -> None:
        if not self._ls.client.lens_refresh:
            return
        self._wanted = True
        self._arm()

    def close(self) -> None:
        self._wanted = False
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _arm(self) -> None:
        if self._timer is None and not self._outstanding:
            loop = asyncio.get_running_loop()
            wait = max(0.0, self._last + _INTERVAL - loop.time())
            self._timer = loop.call_later(wait, self._send)

    def _send(self) -> None:
        self._timer = None
        if not self._wanted:
            return
        self._wanted = False
        self._outstanding = True
        self._last = asyncio.get_running_loop().time()
        self._ls.spawn(self._ask())

    async def _ask(self) -> None:
        try:
            await self._ls.ask(types.WORKSPACE_CODE_LENS_REFRESH, None)
        finally:
            self._outstanding = False
            if self._wanted:
                self._arm()

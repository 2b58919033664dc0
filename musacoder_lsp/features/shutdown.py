"""`shutdown`: every Job and every process ends before the answer."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from musacoder_lsp.server import KernelServer


async def shutdown(ls: KernelServer, *_: Any) -> None:
    await ls.end_session()

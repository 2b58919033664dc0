"""`initialized`: the client can be asked now."""

from __future__ import annotations

from typing import TYPE_CHECKING

from lsprotocol import types

from musacoder_lsp.features import configuration

if TYPE_CHECKING:
    from musacoder_lsp.server import KernelServer


def initialized(ls: KernelServer, params: types.InitializedParams) -> None:
    configuration.register(ls)
    configuration.pull(ls)

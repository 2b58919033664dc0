"""`initialize`: what the server offers to this client."""

from __future__ import annotations

from typing import TYPE_CHECKING

from lsprotocol import types

from musacoder_lsp.features import configuration, workspace_folders
from musacoder_lsp.features.client import client_of

if TYPE_CHECKING:
    from musacoder_lsp.server import KernelServer


def initialize(ls: KernelServer, params: types.InitializeParams) -> None:
    """pygls answers with the capabilities of the registered features."""
    ls.client = client_of(params)
    ls.protocol.use_own_documents(params)
    ls.start_session()
    workspace_folders.set_folders(ls, params)
    configuration.use_initial(ls, params.initialization_options)
    ls.watch_parent(params.process_id)

"""Workspace folders: several, one, or none."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from lsprotocol import types

from musacoder_lsp.features import configuration
from musacoder_lsp.features.document import canonical, file_path
from musacoder_lsp.session import Folder

if TYPE_CHECKING:
    from musacoder_lsp.server import KernelServer


def set_folders(ls: KernelServer, params: types.InitializeParams) -> None:
    """The folders that the client opened; an older client names one root instead. None is normal,
    and then nothing is searched: such a client often starts the server in `/`."""
    uris = [folder.uri for folder in params.workspace_folders or []]
    if not uris and params.root_uri:
        uris = [params.root_uri]
    elif not uris and params.root_path:
        uris = [Path(params.root_path).as_uri()]
    ls.session.folders = _folders(uris)


def did_change_workspace_folders(
    ls: KernelServer, params: types.DidChangeWorkspaceFoldersParams
) -> None:
    removed = {canonical(folder.uri) for folder in params.event.removed}
    kept = [folder for folder in ls.session.folders if canonical(folder.uri) not in removed]
    added = _folders([folder.uri for folder in params.event.added])
    known = {folder.path for folder in kept}
    ls.session.folders = (*kept, *(folder for folder in added if folder.path not in known))
    for uri in removed:
        ls.session.settings.pop(uri, None)
    configuration.pull(ls)
    if not ls.client.configuration:
        ls.spawn(ls.session.settings_changed())


def _folders(uris: list[str]) -> tuple[Folder, ...]:
    found = []
    for uri in uris:
        path = file_path(uri)
        if path is not None and Path(path) != Path(Path(path).anchor):
            found.append(Folder(uri, Path(path).resolve()))
    return tuple(found)

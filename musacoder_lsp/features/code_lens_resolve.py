"""`codeLens/resolve`: what a lens says, from memory, without waiting."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from lsprotocol import types

from musacoder_lsp.jobs.job import SiteKey
from musacoder_lsp.lens import Click, lens

if TYPE_CHECKING:
    from musacoder_lsp.server import KernelServer

_COMMANDS: dict[Click, str] = {
    "generate": "musacoder.generate",
    "annotate": "musacoder.annotate",
    "report": "musacoder.showReport",
    "none": "",
}


def code_lens_resolve(ls: KernelServer, params: types.CodeLens) -> types.CodeLens:
    """Always fills `command`: in Neovim 0.11 one unresolved lens blocks the buffer's others."""
    data: Any = params.data if isinstance(params.data, dict) else {}
    uri, site = str(data.get("uri", "")), str(data.get("site", ""))
    return types.CodeLens(params.range, _command(ls, uri, site, data), data)


def _command(ls: KernelServer, uri: str, site: str, data: dict[str, Any]) -> types.Command:
    document = ls.documents.opened(uri)
    view = ls.session.documents.view(document.uri) if document is not None else None
    spot = view.spot(site) if view is not None else None
    if document is None or spot is None:
        return types.Command("moved, look again", "")
    if data.get("role") == "cancel":
        job = ls.session.runner.active(SiteKey(document.uri, site))
        if job is None or job.ended:
            return types.Command("ended", "")
        return types.Command("cancel", "musacoder.cancel", arguments=[{"job": job.id}])
    text = lens(ls.session.state(document.uri, spot), ls.now())
    if text.click == "none":
        return types.Command(text.title, "")
    argument = {"uri": uri, "site": site, "hash": spot.site.fingerprint}
    return types.Command(text.title, _COMMANDS[text.click], arguments=[argument])

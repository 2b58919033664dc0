"""Which handler serves which method: the table of contents of this package."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from lsprotocol import types

from musacoder_lsp.features.code_action import KINDS, code_action
from musacoder_lsp.features.code_action_resolve import code_action_resolve
from musacoder_lsp.features.code_lens import code_lens
from musacoder_lsp.features.code_lens_resolve import code_lens_resolve
from musacoder_lsp.features.configuration import did_change_configuration
from musacoder_lsp.features.did_change import did_change
from musacoder_lsp.features.did_close import did_close
from musacoder_lsp.features.did_open import did_open
from musacoder_lsp.features.did_save import did_save
from musacoder_lsp.features.hover import hover
from musacoder_lsp.features.initialize import initialize
from musacoder_lsp.features.initialized import initialized
from musacoder_lsp.features.shutdown import shutdown
from musacoder_lsp.features.work_done_progress_cancel import work_done_progress_cancel
from musacoder_lsp.features.workspace_folders import did_change_workspace_folders

Handler = Callable[..., Any]

# Handlers that touch the text are synchronous: two asynchronous `didChange` handlers would
# interleave. None takes longer than some milliseconds.
ROUTES: tuple[tuple[str, Handler, Any], ...] = (
    (types.INITIALIZE, initialize, None),
    (types.INITIALIZED, initialized, None),
    (types.SHUTDOWN, shutdown, None),
    (types.TEXT_DOCUMENT_DID_OPEN, did_open, None),
    (types.TEXT_DOCUMENT_DID_CHANGE, did_change, None),
    (types.TEXT_DOCUMENT_DID_SAVE, did_save, types.SaveOptions(include_text=False)),
    (types.TEXT_DOCUMENT_DID_CLOSE, did_close, None),
    (types.TEXT_DOCUMENT_CODE_LENS, code_lens, types.CodeLensOptions(resolve_provider=True)),
    (types.CODE_LENS_RESOLVE, code_lens_resolve, None),
    (types.TEXT_DOCUMENT_HOVER, hover, None),
    (
        types.TEXT_DOCUMENT_CODE_ACTION,
        code_action,
        types.CodeActionOptions(code_action_kinds=KINDS, resolve_provider=True),
    ),
    (types.CODE_ACTION_RESOLVE, code_action_resolve, None),
    (types.WORKSPACE_DID_CHANGE_CONFIGURATION, did_change_configuration, None),
    (types.WORKSPACE_DID_CHANGE_WORKSPACE_FOLDERS, did_change_workspace_folders, None),
    (types.WINDOW_WORK_DONE_PROGRESS_CANCEL, work_done_progress_cancel, None),
)

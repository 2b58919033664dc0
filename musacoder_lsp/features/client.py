"""What the client can do, worked out once from its capabilities."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from lsprotocol import types


@dataclass(frozen=True, slots=True)
class Client:
    """`status` is ours: the client asked for `musacoder/status` notifications."""

    lens_refresh: bool = False
    markdown_hover: bool = False
    work_done_progress: bool = False
    configuration: bool = False
    configuration_registration: bool = False
    show_document: bool = False
    apply_edit: bool = False
    action_literals: bool = False
    resolves_action_edit: bool = False
    disabled_actions: bool = False
    preferred_actions: bool = False
    action_tags: tuple[types.CodeActionTag, ...] = ()
    related_information: bool = False
    status: bool = False


def client_of(params: types.InitializeParams) -> Client:
    capabilities = params.capabilities
    workspace = capabilities.workspace
    document = capabilities.text_document
    window = capabilities.window
    lens = workspace.code_lens if workspace else None
    change = workspace.did_change_configuration if workspace else None
    hover = document.hover if document else None
    action = document.code_action if document else None
    diagnostics = document.publish_diagnostics if document else None
    resolved = action.resolve_support.properties if action and action.resolve_support else ()
    shows = window.show_document if window else None
    formats = hover.content_format if hover and hover.content_format else ()
    return Client(
        lens_refresh=bool(lens and lens.refresh_support),
        # The first format is the one that the client likes best.
        markdown_hover=bool(formats) and formats[0] == types.MarkupKind.Markdown,
        work_done_progress=bool(window and window.work_done_progress),
        configuration=bool(workspace and workspace.configuration),
        configuration_registration=bool(change and change.dynamic_registration),
        show_document=bool(shows and shows.support),
        apply_edit=bool(workspace and workspace.apply_edit),
        action_literals=bool(action and action.code_action_literal_support),
        resolves_action_edit="edit" in resolved,
        disabled_actions=bool(action and action.disabled_support),
        preferred_actions=bool(action and action.is_preferred_support),
        action_tags=_tags(action),
        related_information=bool(diagnostics and diagnostics.related_information),
        status=_asks_for_status(params),
    )


def _tags(action: types.CodeActionClientCapabilities | None) -> tuple[types.CodeActionTag, ...]:
    if action is None or action.tag_support is None:
        return ()
    return tuple(action.tag_support.value_set)


def _asks_for_status(params: types.InitializeParams) -> bool:
    experimental: Any = params.capabilities.experimental
    options: Any = params.initialization_options
    wanted = experimental.get("musacoderStatus") if isinstance(experimental, dict) else None
    asked = options.get("status") if isinstance(options, dict) else None
    return bool(wanted or asked)

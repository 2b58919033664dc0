"""Settings: pulled per folder after start and at each change; pushed ones are accepted, too."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from lsprotocol import types

from musacoder_lsp.settings import SECTION, Settings, parse

if TYPE_CHECKING:
    from musacoder_lsp.server import KernelServer

logger = logging.getLogger(__name__)

# Keys of `initializationOptions` that are no settings.
_OTHER_OPTIONS = ("status",)


def use_initial(ls: KernelServer, options: Any) -> None:
    """`initializationOptions` are the settings of a client that cannot be asked, and what a folder
    gets where the client answers null."""
    raw = options
    if isinstance(options, dict):
        raw = {key: value for key, value in options.items() if key not in _OTHER_OPTIONS}
    ls.session.default_settings = _checked(ls, raw)


def did_change_configuration(ls: KernelServer, params: types.DidChangeConfigurationParams) -> None:
    if ls.client.configuration:
        pull(ls)
        return
    # Clients that push send null to say only that something changed.
    if params.settings is not None:
        ls.session.default_settings = _checked(ls, params.settings)
        ls.spawn(ls.session.settings_changed())


def register(ls: KernelServer) -> None:
    """VS Code tells of changes only those who have registered for them."""
    if not ls.client.configuration_registration:
        return
    registration = types.Registration(
        id="musacoder-configuration",
        method=types.WORKSPACE_DID_CHANGE_CONFIGURATION,
        register_options=types.DidChangeConfigurationRegistrationOptions(section=SECTION),
    )
    ls.spawn(
        ls.ask(
            types.CLIENT_REGISTER_CAPABILITY, types.RegistrationParams(registrations=[registration])
        )
    )


def pull(ls: KernelServer) -> None:
    if ls.client.configuration:
        ls.spawn(_pull(ls))


async def _pull(ls: KernelServer) -> None:
    uris = [folder.uri for folder in ls.session.folders]
    items = [types.ConfigurationItem(scope_uri=uri, section=SECTION) for uri in uris]
    items.append(types.ConfigurationItem(section=SECTION))
    answer = await ls.ask(types.WORKSPACE_CONFIGURATION, types.ConfigurationParams(items=items))
    values: Sequence[Any] = answer if isinstance(answer, (list, tuple)) else []
    session = ls.session
    for uri, value in zip(uris, values, strict=False):
        if value is not None:
            session.settings[uri] = _checked(ls, value)
    if len(values) == len(items) and values[-1] is not None:
        session.default_settings = _checked(ls, values[-1])
    await session.settings_changed()
    ls.lenses_changed()


def _checked(ls: KernelServer, raw: Any) -> Settings:
    settings, warnings = parse(raw)
    for sentence in warnings:
        ls.note(sentence, types.MessageType.Warning)
    return settings

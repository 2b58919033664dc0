"""Runs `spec["code"]` with `channel` and `spec` in reach, then says {"done": True}."""

from __future__ import annotations

from typing import Any

from musacoder_runtime.channel import Channel


def main(channel: Channel, spec: dict[str, Any]) -> None:
    exec(compile(spec["code"], "<code>", "exec"), {"channel": channel, "spec": spec})
    channel.send({"done": True})

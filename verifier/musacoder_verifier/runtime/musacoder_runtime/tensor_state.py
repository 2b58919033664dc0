"""Parameters and buffers by name: taken, changed, and transferred from the Reference."""

from __future__ import annotations

from typing import Any, Mapping

import torch


def tensors(model: torch.nn.Module) -> dict[str, torch.Tensor]:
    """The tensors of the state_dict, in its order."""
    return {k: v for k, v in model.state_dict().items() if isinstance(v, torch.Tensor)}


def change(model: torch.nn.Module, seed: int) -> None:
    """Other values of the same kind for every floating tensor: what was positive everywhere (a
    variance) stays so."""
    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for value in tensors(model).values():
            if not value.is_floating_point() or value.numel() == 0:
                continue
            noise = torch.randn(value.shape, generator=generator, dtype=torch.float32)
            scale = float(value.float().abs().mean()) or 0.1
            if bool((value > 0).all()):
                factor = (0.3 * noise).exp()
                value.copy_((value.float().cpu() * factor).to(value.dtype))
            else:
                value.copy_((value.float().cpu() * 0.8 + scale * 0.5 * noise).to(value.dtype))


def load(model: torch.nn.Module, state: Mapping[str, torch.Tensor]) -> dict[str, Any]:
    """Strict by name and shape, as `load_state_dict`; nothing is loaded where they differ."""
    own = tensors(model)
    missing = sorted(set(own) - set(state))
    unexpected = sorted(set(state) - set(own))
    misshapen = sorted(
        name for name in set(own) & set(state) if own[name].shape != state[name].shape
    )
    if missing or unexpected or misshapen:
        return {
            "loaded": False,
            "missing": missing[:8],
            "unexpected": unexpected[:8],
            "misshapen": misshapen[:8],
        }
    with torch.no_grad():
        model.load_state_dict({**model.state_dict(), **state})
    return {"loaded": True}

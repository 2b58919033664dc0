"""A source file of any length, to open in the server that is measured."""

from __future__ import annotations


def synthetic_source(lines: int) -> str:
    """A file of about `lines` lines as projects have them: modules, functions, other code."""
    blocks = [_HEADER]
    count = _HEADER.count("\n")
    number = 0
    while count < lines:
        block = (_MODULE, _PLAIN, _FUNCTION, _PLAIN)[number % 4].replace("{n}", str(number))
        blocks.append(block)
        count += block.count("\n")
        number += 1
    return "".join(blocks)


_HEADER = "import math\n\nimport torch\nimport torch.nn.functional as F\nfrom torch import nn\n\n\n"
_MODULE = '''class Block{n}(nn.Module):
    """A gated block."""

    def __init__(self, width: int = 256) -> None:
        super().__init__()
        self.up = nn.Linear(width, 4 * width)
        self.down = nn.Linear(4 * width, width)
        self.norm = nn.LayerNorm(width)

    # musacoder: x: f32[64, 256]
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        hidden = F.gelu(self.up(self.norm(x)))
        return x + self.down(hidden)


'''
_FUNCTION = """# musacoder: x: f32[128, 1024], weight: f32[1024]
def rms_norm_{n}(x: torch.Tensor, weight: torch.Tensor, eps: float = 1e-6) -> torch.Tensor:
    scale = torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + eps)
    return x * scale * weight


"""
_PLAIN = '''def schedule_{n}(step: int, warmup: int = 100, total: int = 10_000) -> float:
    """Cosine decay after a linear warm-up."""
    if step < warmup:
        return step / max(1, warmup)
    progress = (step - warmup) / max(1, total - warmup)
    names = [name for name in ("a", "b", "c") if name != str(step)]
    table = {name: len(name) for name in names}
    return 0.5 * (1.0 + math.cos(math.pi * progress)) * len(table) / 2


'''

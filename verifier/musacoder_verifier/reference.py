"""Reference: the self-contained PyTorch module that a Candidate is measured against."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True)
class SourceLine:
    """Where one line of a Reference came from."""

    path: str
    line: int  # 0-based, in the user's file


@dataclass(frozen=True, slots=True)
class Reference:
    """A Python module in KernelBench's convention: `Model`, `get_inputs`, `get_init_inputs`.

    `lines[i]` says where line `i` (0-based) of `source` stands in the user's files, None for a
    line that we wrote. `import_roots` are the folders of the workspace from which the module
    imports; the runtime worker puts them on `sys.path`. `training` fixes the mode that both sides
    run in. `path` is the user's file, for messages only.
    """

    source: str
    path: str | None = None
    lines: tuple[SourceLine | None, ...] = ()
    import_roots: tuple[str, ...] = ()
    training: bool = False
    # Content digests of the workspace files that the source imports, as "path:sha256".
    imported: tuple[str, ...] = field(default=())
    # What a person should know about how it was built, one sentence each; not part of the key.
    notes: tuple[str, ...] = field(default=())

    @property
    def key(self) -> str:
        """Content key: equal keys mean that stored results still speak of this Reference."""
        digest = hashlib.sha256()
        for part in (self.source, str(self.training), *self.imported):
            digest.update(part.encode("utf-8", "surrogatepass"))
            digest.update(b"\0")
        return digest.hexdigest()

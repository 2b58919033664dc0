"""Modules of the workspace that a Reference imports: where they are, and what they contain.

At run time Python imports them from the disk, so their digests are those of the disk; a buffer
with unsaved changes is named in a note, because its text is not what runs.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

from tree_sitter import Node

from musacoder_lsp.sites.document import Document, read_source
from musacoder_lsp.sites.syntax import field, parse, text_of, walk

Read = Callable[[Path], str | None]
# A workspace whose imports reach further is followed this far; the rest is not in the key.
_MOST_FILES = 400
_RELATIVE = re.compile(r"(\.+)(.*)")


@dataclass(frozen=True, slots=True)
class Imports:
    roots: tuple[str, ...]
    digests: tuple[str, ...]
    notes: tuple[str, ...]


class Workspace:
    """Resolves the imports of one file. `roots` are the workspace's folders; `read` gives the text
    of a file, unsaved or on disk, and None when there is none."""

    def __init__(self, path: str | None, roots: Sequence[Path], read: Read) -> None:
        self._read = read
        self._file = Path(path) if path else None
        candidates: list[Path] = []
        if self._file is not None:
            candidates.append(self._package_root(self._file.parent))
            candidates.append(self._file.parent)
        for root in roots:
            candidates += [root, root / "src"]
        self._candidates = list(dict.fromkeys(candidates))
        self._texts: dict[Path, str | None] = {}

    def _text(self, path: Path) -> str | None:
        if path not in self._texts:
            self._texts[path] = self._read(path)
        return self._texts[path]

    def _package_root(self, folder: Path) -> Path:
        """First folder upwards that is no package."""
        while folder != folder.parent and self._read(folder / "__init__.py") is not None:
            folder = folder.parent
        return folder

    def absolute(self, module: str, path: Path | None = None) -> str | None:
        """`..ops.gelu` as `package.ops.gelu`; None when the file is in no package."""
        match = _RELATIVE.fullmatch(module)
        if match is None:
            return module
        file = path or self._file
        if file is None:
            return None
        package = self._package_of(file)
        up = len(match.group(1)) - 1
        if up >= len(package) or not package:
            return None
        parts = [*package[: len(package) - up], *filter(None, match.group(2).split("."))]
        return ".".join(parts)

    def _package_of(self, file: Path) -> tuple[str, ...]:
        root = self._package_root(file.parent)
        if root != file.parent:
            return file.parent.relative_to(root).parts
        # A namespace package has no __init__.py: the path below a folder of the workspace.
        for candidate in self._candidates:
            if candidate != file.parent and file.parent.is_relative_to(candidate):
                return file.parent.relative_to(candidate).parts
        return ()

    def imports(self, modules: Iterable[str]) -> Imports:
        """Everything in the workspace that importing `modules` (absolute names) runs."""
        roots: dict[str, None] = {}
        digests: dict[str, str] = {}
        notes: list[str] = []
        waiting = list(dict.fromkeys(modules))
        seen = set(waiting)
        while waiting and len(digests) < _MOST_FILES:
            module = waiting.pop()
            for root, file in self._files(module):
                roots.setdefault(str(root), None)
                if str(file) in digests:
                    continue
                text, changed = self._on_disk(file)
                if changed:
                    notes.append(f"{file.name} has unsaved changes; the saved version is used.")
                digests[str(file)] = hashlib.sha256(
                    text.encode("utf-8", "surrogatepass")
                ).hexdigest()
                for inner in self._imported_by(file, text):
                    if inner not in seen:
                        seen.add(inner)
                        waiting.append(inner)
        return Imports(
            tuple(roots),
            tuple(f"{path}:{digest}" for path, digest in sorted(digests.items())),
            tuple(notes),
        )

    def _files(self, module: str) -> list[tuple[Path, Path]]:
        """The files that `import module` runs, from the first root that has the module."""
        parts = module.split(".")
        for root in self._candidates:
            found: list[tuple[Path, Path]] = []
            folder = root
            for part in parts:
                plain, package = folder / f"{part}.py", folder / part / "__init__.py"
                if self._text(package) is not None:
                    found.append((root, package))
                elif self._text(plain) is not None:
                    found.append((root, plain))
                    break
                folder = folder / part
            if found:
                return found
        return []

    def _on_disk(self, file: Path) -> tuple[str, bool]:
        text = self._text(file) or ""
        try:
            saved = read_source(file).text
        except OSError:
            return text, False
        return saved, saved.replace("\r\n", "\n") != text.replace("\r\n", "\n")

    def _imported_by(self, file: Path, text: str) -> Iterable[str]:
        document = Document(text)
        for node in walk(parse(document).root_node):
            if node.type in ("import_statement", "import_from_statement"):
                for module in imported_modules(node, document.data):
                    absolute = self.absolute(module, file)
                    if absolute is not None:
                        yield absolute


def imported_modules(node: Node, data: bytes) -> Iterable[str]:
    """Module names of an import statement; each name of a `from` import may be a module too."""
    if node.type == "import_statement":
        for child in node.named_children:
            name = field(child, "name") if child.type == "aliased_import" else child
            if name is not None:
                yield text_of(name, data)
        return
    module_node = field(node, "module_name")
    if module_node is None:
        return
    module = text_of(module_node, data)
    yield module
    for child in node.named_children:
        name = field(child, "name") if child.type == "aliased_import" else child
        if child != module_node and name is not None and name.type == "dotted_name":
            yield (
                f"{module}{text_of(name, data)}"
                if module.endswith(".")
                else (f"{module}.{text_of(name, data)}")
            )

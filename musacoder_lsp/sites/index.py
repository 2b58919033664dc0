"""SiteIndex: the Sites of one open document, kept up to date edit by edit."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Sequence
from dataclasses import replace
from pathlib import PurePath

from musacoder_verifier.workload import Origin
from tree_sitter import Node, Tree

from musacoder_lsp.sites.comments import comments_start
from musacoder_lsp.sites.discover import Found, discover
from musacoder_lsp.sites.document import Document, Edit, apply_edits, difference
from musacoder_lsp.sites.names import Binding, ModuleNames, bindings
from musacoder_lsp.sites.pieces import Dependencies, Piece, Placed, identifiers, normalised
from musacoder_lsp.sites.selection import Place, call_site, enclosing_definition, selection_site
from musacoder_lsp.sites.site import Refused, Site
from musacoder_lsp.sites.syntax import definition_of, error_ranges, parse, reparse

_TOO_DEEP = Refused("The code here is nested too deeply to be taken apart.")
# Below this the cache of pieces is left alone: pieces of the text before the last edit are reused
# when the edit is undone.
_CACHE_SLACK = 256


def find_sites(text: str, path: str | None = None) -> tuple[Site, ...]:
    """Sites that carry a lens: module classes and functions that compute on tensors."""
    return SiteIndex(text, path).sites()


class SiteIndex:
    """Holds the syntax tree of one document. While the text does not parse, the last good Sites
    stay, moved by the edits. Not thread-safe; give it one owner."""

    def __init__(self, text: str, path: str | None = None) -> None:
        self._path = path
        self._tests = _is_test_file(path)
        self._cache: dict[bytes, Piece] = {}
        self._document = Document(text)
        self._tree: Tree | None = None if "\0" in text else parse(self._document)
        self._bindings: list[tuple[Binding, ...]] = []
        self._names = ModuleNames(())
        self._dependencies = Dependencies(())
        self._last_pieces: dict[int, Piece] = {}
        self._sites: tuple[Site, ...] = ()
        self._sites = self._extract(())

    @property
    def text(self) -> str:
        return self._document.text

    @property
    def document(self) -> Document:
        return self._document

    @property
    def tree(self) -> Tree | None:
        """None for a text with NUL characters, which is no source."""
        return self._tree

    @property
    def path(self) -> str | None:
        return self._path

    def sites(self) -> tuple[Site, ...]:
        return self._sites

    def site_at(self, offset: int) -> Site | None:
        """The innermost of `sites` around the offset."""
        around = [site for site in self._sites if site.start <= offset <= site.end]
        return min(around, key=lambda site: site.end - site.start, default=None)

    def call_at(self, offset: int) -> Site | Refused:
        """The innermost tensor operation around the offset."""
        place = self._place()
        if isinstance(place, Refused):
            return place
        try:
            return call_site(place, offset)
        except RecursionError:
            return _TOO_DEEP

    def selection(self, start: int, end: int) -> Site | Refused:
        """A Site of the statements that the range touches, or of the expression that it covers; a
        range over a whole class or function is that Site."""
        place = self._place()
        if isinstance(place, Refused):
            return place
        definition = enclosing_definition(place, start, end)
        if definition is not None:
            for site in self._sites:
                if (site.start, site.end) == definition:
                    return site
        try:
            return selection_site(place, start, end)
        except RecursionError:
            return _TOO_DEEP

    def _place(self) -> Place | Refused:
        if self._tree is None:
            return Refused("The file is not text.")
        return Place(self._document, self._tree.root_node, self._names, self._fragment_digest)

    def _fragment_digest(self, texts: Sequence[bytes]) -> str:
        used = self._dependencies.closure(set().union(*map(identifiers, texts)))[1]
        return digest_of(texts, used.values())

    def update(self, change: str | Sequence[Edit]) -> tuple[Site, ...]:
        """Takes the whole new text, or edits each relative to the text after those before it."""
        if isinstance(change, str):
            edit = difference(self._document.text, change)
            edits: Sequence[Edit] = () if edit is None else (edit,)
        else:
            edits = change
        if not edits:
            return self._sites
        if self._tree is None or any("\0" in edit.text for edit in edits):
            self._document = Document(apply_edits(self._document.text, edits))
            self._tree = None if "\0" in self._document.text else parse(self._document)
        else:
            self._document, self._tree = reparse(self._tree, self._document, edits)
        self._sites = self._extract(edits)
        return self._sites

    # Extraction ------------------------------------------------------------------------------

    def _extract(self, edits: Sequence[Edit]) -> tuple[Site, ...]:
        if self._tree is None:
            return ()
        root = self._tree.root_node
        placed = self._pieces(root)
        all_bindings = [place.piece.bindings for place in placed]
        self._dependencies = Dependencies(placed)
        same_names = all_bindings == self._bindings
        if not same_names:
            self._bindings = all_bindings
            self._names = ModuleNames(b for piece in all_bindings for b in piece)
        names = self._names
        for place in placed:
            piece = place.piece
            holds = same_names or (not piece.skipped and names.still_holds(piece.asked))
            if piece.found is None or not holds:
                piece.skipped = names.foreign(piece.identifiers)
                names.asked = {}
                piece.found = () if piece.skipped else self._discover(place, names)
                piece.asked = names.asked
                piece.fingerprints = {}
        fresh = _Assembly(
            self._document, placed, names, self._dependencies, self._changed_names(placed)
        ).sites()
        if not root.has_error:
            return fresh
        return self._merge(fresh, moved(self._sites, edits), root)

    def _changed_names(self, placed: Sequence[Placed]) -> frozenset[bytes]:
        """Names of the module that may mean something else than at the last extraction."""
        current = {id(place.piece): place.piece for place in placed}
        changed = [p for key, p in current.items() if key not in self._last_pieces]
        changed += [p for key, p in self._last_pieces.items() if key not in current]
        self._last_pieces = current
        return frozenset(b.name.encode() for piece in changed for b in piece.bindings)

    def _pieces(self, root: Node) -> list[Placed]:
        data = self._document.data
        placed: list[Placed] = []
        used: dict[bytes, Piece] = {}
        after_comment = False
        for node in root.named_children:
            if node.type == "comment":
                after_comment = True
                continue
            start = node.start_byte
            if after_comment and definition_of(node) is not None:
                start = comments_start(data, start)
            after_comment = False
            key = data[start : node.end_byte]
            # A piece that does not parse may parse otherwise after an edit behind it.
            piece = used.get(key) or (None if node.has_error else self._cache.get(key))
            if piece is None:
                piece = Piece(
                    tuple(bindings(node, data)),
                    frozenset(identifiers(key)),
                    hashlib.sha256(normalised(key)).digest(),
                    {},
                )
            used[key] = piece
            placed.append(Placed(piece, start, node))
        if len(self._cache) > 2 * len(used) + _CACHE_SLACK:
            self._cache = used
        else:
            self._cache.update(used)
        return placed

    def _discover(self, place: Placed, names: ModuleNames) -> tuple[Found, ...]:
        node = place.node
        if node.type.endswith("import_statement") or node.type == "expression_statement":
            return ()
        try:
            found = discover(node, self._document.data, names, tests=self._tests)
        except RecursionError:
            # Nested beyond what any person writes, such as generated tables.
            return ()
        return tuple(_relative(item, place.start, self._document.data) for item in found)

    def _merge(
        self, fresh: tuple[Site, ...], last: tuple[Site, ...], root: Node
    ) -> tuple[Site, ...]:
        """Fresh Sites where the text parses, the last good ones where it does not."""
        offset = self._document.offset
        broken = [(offset(start), offset(end)) for start, end in error_ranges(root)]
        by_id = {site.id: site for site in fresh}
        kept = [
            self._on_its_line(site)
            for site in last
            if site.id not in by_id
            and any(start <= site.end and end >= site.start for start, end in broken)
        ]
        # Recovery from an error can make a method look like a function of the module.
        added = [
            site
            for site in fresh
            if not any(old.start < site.end and site.start < old.end for old in kept)
        ]
        return tuple(sorted([*kept, *added], key=lambda site: (site.start, -site.end)))

    def _on_its_line(self, site: Site) -> Site:
        """An edit on the line of the header may have moved it off the line's start."""
        line = site.start if site.header <= site.start else site.header
        return replace(site, header=self._document.line_start(line))


class _Assembly:
    """Puts the Sites of the pieces together: offsets, ids, `get_inputs`, fingerprints."""

    def __init__(
        self,
        document: Document,
        placed: Sequence[Placed],
        names: ModuleNames,
        dependencies: Dependencies,
        changed: frozenset[bytes],
    ) -> None:
        self._changed = changed
        self._document = document
        self._placed = placed
        self._names = names
        self._dependencies = dependencies

    def sites(self) -> tuple[Site, ...]:
        found = [(place, item) for place in self._placed for item in place.piece.found or ()]
        operations = {item.name: item.operations for _, item in found if item.operations}
        owner = self._owner([item for _, item in found])
        seen: dict[str, int] = {}
        sites: list[Site] = []
        for place, item in found:
            if item.inherits is not None:
                inherited = self._inherited(item.inherits, operations)
                if not inherited:
                    continue
                item = replace(item, operations=inherited)
            key = f"{item.kind}:{item.name}"
            ordinal = seen[key] = seen.get(key, 0) + 1
            sites.append(
                self._site(place, item, key if ordinal == 1 else f"{key}:{ordinal}", item is owner)
            )
        return tuple(sorted(sites, key=lambda site: (site.start, -site.end)))

    def _inherited(self, base: str, operations: dict[str, tuple[str, ...]]) -> tuple[str, ...]:
        seen: set[str] = set()
        while base.startswith("@") and base not in seen:
            seen.add(base)
            if base[1:] in operations:
                return operations[base[1:]]
            base = next(
                (b for b in self._names.bases_of(base[1:]) if self._names.is_module_class(b)), ""
            )
        name = base.rpartition(".")[2]
        return (name,) if base.startswith("torch.nn.") and name != "Module" else ()

    def _owner(self, found: Sequence[Found]) -> Found | None:
        """The Site that `get_inputs` speaks of: `Model`, else the one class that no other class of
        the file uses, else the one function."""
        if b"get_inputs" not in self._dependencies:
            return None
        modules = [f for f in found if f.kind == "module" and "." not in f.name]
        for item in modules:
            if item.name == "Model":
                return item
        if not modules:
            functions = [f for f in found if f.kind == "function" and "." not in f.name]
            return functions[0] if len(functions) == 1 else None
        used: set[bytes] = set()
        for place in self._placed:
            if place.piece.found:
                own = {binding.name.encode() for binding in place.piece.bindings}
                used |= place.piece.identifiers - own
        top = [item for item in modules if item.name.encode() not in used]
        return top[0] if len(top) == 1 else None

    def _site(self, place: Placed, item: Found, identity: str, owns_inputs: bool) -> Site:
        origin: Origin | None = "annotation" if item.annotated else None
        missing = item.missing
        problem: str | None = None
        if owns_inputs and (not item.needs_init or b"get_init_inputs" in self._dependencies):
            origin, missing = "get_inputs", ()
        elif item.problem is not None:
            problem = item.problem.message
            if item.problem.line >= 0:
                line = item.problem.line + self._document.data.count(b"\n", 0, place.start)
                problem = f"Line {line + 1}: {problem}"
        offset = self._document.offset
        return Site(
            identity,
            item.kind,
            item.name,
            offset(place.start + item.start),
            offset(place.start + item.end),
            offset(place.start + item.header),
            item.operations,
            missing,
            self._fingerprint(place, item, identity, origin == "get_inputs"),
            origin,
            problem,
        )

    def _fingerprint(self, place: Placed, item: Found, identity: str, owns: bool) -> str:
        known = place.piece.fingerprints.get((identity, owns))
        if known is not None and known[1].isdisjoint(self._changed):
            return known[0]
        text = self._document.data[place.start + item.text_start : place.start + item.end]
        own = identifiers(text)
        if owns:
            own |= {b"get_inputs", b"get_init_inputs"}
        names, used = self._dependencies.closure(own)
        used.pop(id(place.piece), None)
        fingerprint = digest_of([text], used.values())
        place.piece.fingerprints[identity, owns] = (fingerprint, names)
        return fingerprint


def digest_of(texts: Iterable[bytes], pieces: Iterable[Piece]) -> str:
    """Fingerprint of a Site's own texts and of the pieces that they use."""
    digest = hashlib.sha256()
    for text in texts:
        digest.update(normalised(text))
        digest.update(b"\0")
    for part in sorted(piece.digest for piece in pieces):
        digest.update(part)
    return digest.hexdigest()[:32]


def moved(sites: Sequence[Site], edits: Sequence[Edit]) -> tuple[Site, ...]:
    """The Sites where they are after the edits; those whose text was deleted are gone."""
    result = tuple(sites)
    for edit in edits:
        result = tuple(site for old in result if (site := _moved(old, edit)) is not None)
    return result


def _moved(site: Site, edit: Edit) -> Site | None:
    growth = len(edit.text) - (edit.end - edit.start)
    if edit.start >= site.end:
        return site
    if edit.end <= site.start and edit.end <= site.header:
        return site.shifted(growth)
    if edit.start <= site.start and edit.end >= site.end:
        return None
    end = site.end + growth if edit.end <= site.end else edit.start
    start = min(_moved_start(site.start, edit), end)
    return replace(site, start=start, end=end, header=min(_moved_start(site.header, edit), end))


def _moved_start(offset: int, edit: Edit) -> int:
    """Where the character at the offset is after the edit, or what stands in its place."""
    if edit.end <= offset:
        return offset + len(edit.text) - (edit.end - edit.start)
    return edit.start + len(edit.text) if edit.start < offset else offset


def _relative(item: Found, start: int, data: bytes) -> Found:
    problem = item.problem
    if problem is not None and problem.line >= 0:
        problem = replace(problem, line=problem.line - data.count(b"\n", 0, start))
    return replace(
        item,
        start=item.start - start,
        end=item.end - start,
        header=item.header - start,
        text_start=item.text_start - start,
        problem=problem,
    )


def _is_test_file(path: str | None) -> bool:
    name = PurePath(path).name if path else ""
    return name.startswith("test_") or name.endswith("_test.py") or name == "conftest.py"

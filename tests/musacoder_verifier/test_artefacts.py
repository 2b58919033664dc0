"""The cache of compiled things: whole entries only, bounded, safe under concurrent writers."""

from __future__ import annotations

import os
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from musacoder_verifier.artefacts import ArtefactCache, content_key, tree_digest


def publish(cache: ArtefactCache, key: str, text: str) -> Path:
    with cache.building() as folder:
        kept = folder / "kept"
        kept.mkdir()
        (kept / "object").write_text(text)
        return cache.publish(key, kept)


def test_what_was_published_is_found(tmp_path: Path):
    cache = ArtefactCache(tmp_path / "cache")
    key = content_key("fast", ["-O3"], 1)
    assert cache.find(key) is None
    assert (publish(cache, key, "x") / "object").read_text() == "x"
    entry = cache.find(key)
    assert entry is not None
    assert (entry / "object").read_text() == "x"


def test_the_first_of_two_writers_wins(tmp_path: Path):
    cache = ArtefactCache(tmp_path / "cache")
    key = content_key("k")
    publish(cache, key, "first")
    assert (publish(cache, key, "second") / "object").read_text() == "first"
    assert not list((tmp_path / "cache").glob("tmp-*"))


def test_many_writers_leave_one_whole_entry(tmp_path: Path):
    cache = ArtefactCache(tmp_path / "cache")
    key = content_key("k")
    with ThreadPoolExecutor(8) as pool:
        entries = list(pool.map(lambda n: publish(cache, key, "x" * 1000 + str(n)), range(32)))
    assert len(set(entries)) == 1
    assert len((entries[0] / "object").read_text()) >= 1001


def test_a_crash_while_building_leaves_no_entry(tmp_path: Path):
    cache = ArtefactCache(tmp_path / "cache")
    with pytest.raises(RuntimeError), cache.building() as folder:
        (folder / "object").write_text("half")
        raise RuntimeError
    assert not list((tmp_path / "cache").glob("tmp-*"))


def test_the_least_recently_used_go_first(tmp_path: Path):
    cache = ArtefactCache(tmp_path / "cache", max_bytes=250)
    keys = [content_key(n) for n in range(4)]
    for age, key in enumerate(keys):
        entry = publish(cache, key, "x" * 100)
        os.utime(entry, (1000 + age, 1000 + age))
    cache.find(keys[0])  # used now
    cache.shrink()
    assert [cache.find(key) is not None for key in keys] == [True, False, False, True]


def test_old_leftovers_are_swept(tmp_path: Path):
    cache = ArtefactCache(tmp_path / "cache")
    cache.folder.mkdir()
    old, young = cache.folder / "tmp-old", cache.folder / "tmp-young"
    old.mkdir()
    young.mkdir()
    os.utime(old, (1000, 1000))
    publish(cache, content_key("k"), "x")
    assert not old.exists()
    assert young.exists()


def test_a_digest_follows_names_and_contents(tmp_path: Path):
    (tmp_path / "a").write_text("1")
    first = tree_digest(tmp_path)
    (tmp_path / "a").write_text("2")
    second = tree_digest(tmp_path)
    (tmp_path / "a").rename(tmp_path / "b")
    assert len({first, second, tree_digest(tmp_path)}) == 3


def test_keys_tell_parts_apart():
    assert content_key("ab", "c") != content_key("a", "bc")
    assert content_key({"a": 1, "b": 2}) == content_key({"b": 2, "a": 1})

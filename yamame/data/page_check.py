"""Check of the pages of an LMDB file without LMDB, which aborts the process at some corrupted pages.

Format of LMDB 0.9 (numbers in the byte order of the machine, sizes in bytes):

    page  = number 8, padding 2, flags 2, lower 2, upper 2, offset of each node 2, ..., nodes from `upper` to the end
            number 8, padding 2, flags 2, pages 4, value                    several pages with a large value
    node  = low 2, high 2, flags 2, key size 2, key, value or its page 8    in a leaf: low and high are the value's size
            number of the child 6, key size 2, key                          in a branch
    tree  = padding 4, flags 2, depth 2, branch, leaf and large-value pages 8 each, entries 8, number of the root 8
    meta  = header 16, magic 4, version 4, address 8, map size 8, tree of free pages, tree of tables, last page 8, id 8

Trees count their pages and entries, so a missing part is found even if everything else is intact. Contents of records
are not checked: they have checksums of their own. This file is also a program, which imports nothing but `lmdb`.
"""

import os
import struct
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass, field
from itertools import pairwise, zip_longest
from pathlib import Path
from typing import BinaryIO

import lmdb

_HEADER, _LARGE_HEADER = struct.Struct("=QHHHH"), struct.Struct("=QHHI")
_OFFSET, _NODE, _NUMBER, _TREE = map(struct.Struct, ("=H", "=HHHH", "=Q", "=IHHQQQQQ"))
_META = struct.Struct("=QHHHHIIQQ48s48sQQ")
_MAGIC, _VERSION = 0xBEEFC0DE, 1
_BRANCH, _LEAF, _LARGE, _META_PAGE, _KEPT = 0x01, 0x02, 0x04, 0x08, 0x8000
_IS_LARGE, _IS_TREE = 0x01, 0x02
_NO_PAGE = (1 << 64) - 1
_MAX_DEPTH = 32


class CorruptedPageError(Exception):
    """A page is corrupted. The message names it, or the tree that it is missing from."""


def check_pages(directory: Path) -> None:
    """Check the database in a directory as of its last transaction; other processes may write meanwhile.

    Raises:
        CorruptedPageError: If LMDB could abort or lose records.
        lmdb.Error: If LMDB cannot open the file, or this process has it open.
    """
    environment = lmdb.open(str(directory), readonly=True, create=False)
    with environment, (directory / "data.mdb").open("rb") as file:
        checker = None
        while checker is None:
            with environment.begin() as transaction:  # its pages are not reused while it is open
                checker = _Checker.from_transaction(file, environment.stat()["psize"], transaction.id())
                if checker is not None:
                    checker.check()


def check_pages_in_subprocess(directory: Path) -> str:
    """Return the error of `check_pages`, empty if there is none; this process may have the database open."""
    command = [sys.executable, "-I", __file__, str(directory)]
    result = subprocess.run(command, capture_output=True, text=True, errors="replace", check=False)
    return result.stdout.strip() or (f"its reader failed with code {result.returncode}" if result.returncode else "")


@dataclass
class _Tree:
    """Header of a B+ tree, and what was counted."""

    name: str
    depth: int
    expected: tuple[int, ...]
    """Numbers of branch, leaf and large-value pages, and of entries."""
    root: int
    has_numeric_keys: bool
    pages: dict[int, int] = field(default_factory=lambda: {_BRANCH: 0, _LEAF: 0, _LARGE: 0})
    entries: int = 0

    @staticmethod
    def unpack(name: str, header: bytes, *, has_numeric_keys: bool = False) -> "_Tree":
        if len(header) != _TREE.size:
            raise CorruptedPageError(f"{name} has a corrupted header")
        _, _, depth, *expected, root = _TREE.unpack(header)
        if depth > _MAX_DEPTH:
            raise CorruptedPageError(f"{name} has a depth of {depth}")
        return _Tree(name, depth, tuple(expected), root, has_numeric_keys)

    def comparable(self, key: bytes) -> bytes:
        """Return bytes whose order is that of the keys."""
        return key[::-1] if self.has_numeric_keys and sys.byteorder == "little" else key


@dataclass(frozen=True)
class _Node:
    key: bytes
    content: bytes
    """The value, or the number of its first page."""
    size: int
    """Size of the value."""
    flags: int
    child: int
    """Number of the child's page, in a branch."""


class _Checker:
    """Check of one transaction."""

    def __init__(self, file: BinaryIO, page_size: int, free: bytes, tables: bytes, num_pages: int) -> None:
        self._file, self._page_size, self._num_pages = file, page_size, num_pages
        self._free = _Tree.unpack("the list of free pages", free, has_numeric_keys=True)
        self._tables = _Tree.unpack("the list of tables", tables)
        pages_in_file = file.seek(0, os.SEEK_END) // page_size
        self._used = bytearray(min(num_pages, pages_in_file))  # free pages may be beyond the end of the file

    @staticmethod
    def from_transaction(file: BinaryIO, page_size: int, transaction_id: int) -> "_Checker | None":
        """Return the check of a transaction; None if two later ones have replaced both meta pages."""
        for number in range(2):
            file.seek(number * page_size)
            content = file.read(_META.size)
            if len(content) < _META.size:
                raise CorruptedPageError("the file is truncated")
            _, _, flags, _, _, magic, version, _, _, free, tables, last_page, found_id = _META.unpack(content)
            if not flags & _META_PAGE or (magic, version) != (_MAGIC, _VERSION):
                raise CorruptedPageError(f"page {number} is no meta page")
            if found_id == transaction_id:
                return _Checker(file, page_size, free, tables, last_page + 1)
        return None

    def check(self) -> None:
        """Check all trees, and that no page belongs to two of them."""
        self._use(0, 2)
        for table in self._entries(self._tables):
            name = f"the table {table.key.decode(errors='replace')!r}"
            if not table.flags & _IS_TREE:
                raise CorruptedPageError(f"{name} has a corrupted header")
            for _ in self._entries(_Tree.unpack(name, table.content)):
                pass
        for node in self._entries(self._free):
            value = self._value(node)
            numbers = [number for (number,) in _NUMBER.iter_unpack(value[: len(value) // _NUMBER.size * _NUMBER.size])]
            if not numbers or numbers[0] != len(numbers) - 1 or len(value) % _NUMBER.size:
                raise CorruptedPageError(f"{self._free.name} has an entry of {len(value)} bytes")
            for page in numbers[1:]:
                self._use(page, 1)

    def _entries(self, tree: _Tree) -> Iterator[_Node]:
        """Yield the leaf nodes of a tree in the order of their keys, then check its counts."""
        if tree.root != _NO_PAGE:
            yield from self._walk(tree, tree.root, 1, b"", None)
        if (*tree.pages.values(), tree.entries) != tree.expected:
            raise CorruptedPageError(
                f"{tree.name} has {tree.entries} of {tree.expected[-1]} entries "
                f"on {sum(tree.pages.values())} of {sum(tree.expected[:-1])} pages"
            )

    def _walk(self, tree: _Tree, number: int, depth: int, low: bytes, high: bytes | None) -> Iterator[_Node]:
        """Yield the leaf nodes below a page; their keys must be from `low` to `high` (exclusive; None: no limit)."""
        is_leaf = depth == tree.depth
        nodes = self._read_nodes(number, is_leaf=is_leaf)
        tree.pages[_LEAF if is_leaf else _BRANCH] += 1
        keys = [tree.comparable(node.key) for node in nodes]
        if not is_leaf:
            keys[0] = low  # the first key of a branch is unused
        limits = [*keys, *([] if high is None else [high])]
        if keys[0] < low or any(before >= after for before, after in pairwise(limits)):
            raise CorruptedPageError(f"keys on page {number} are out of order")
        for node, first, end in zip_longest(nodes, keys, limits[1:]):
            if is_leaf:
                tree.entries += 1
                tree.pages[_LARGE] += self._use_large(node)
                yield node
            else:
                yield from self._walk(tree, node.child, depth + 1, first, end)

    def _read_nodes(self, number: int, *, is_leaf: bool) -> list[_Node]:
        """Return the nodes of a page, at least one, after checking that they fill it exactly."""
        page = self._read_page(number, _LEAF if is_leaf else _BRANCH)
        _, _, _, lower, upper = _HEADER.unpack_from(page)
        self._use(number, 1)
        if not _HEADER.size < lower <= upper <= len(page) or lower % 2:
            raise CorruptedPageError(f"page {number} has a corrupted header")
        nodes = []
        num_bytes = 0
        for (offset,) in _OFFSET.iter_unpack(page[_HEADER.size : lower]):
            if not upper <= offset <= len(page) - _NODE.size:
                raise CorruptedPageError(f"page {number} has a corrupted offset")
            low, high, flags, key_size = _NODE.unpack_from(page, offset)
            value_size = low | high << 16
            stored = 0 if not is_leaf else _NUMBER.size if flags & _IS_LARGE else value_size
            value_at = offset + _NODE.size + key_size
            if value_at + stored > len(page):
                raise CorruptedPageError(f"page {number} has a corrupted node")
            nodes.append(
                _Node(
                    key=page[offset + _NODE.size : value_at],
                    content=page[value_at : value_at + stored],
                    size=value_size,
                    flags=flags if is_leaf else 0,
                    child=value_size | flags << 32,
                )
            )
            num_bytes += (_NODE.size + key_size + stored + 1) // 2 * 2
        if num_bytes != len(page) - upper:
            raise CorruptedPageError(f"the nodes of page {number} have corrupted sizes")
        return nodes

    def _use_large(self, node: _Node) -> int:
        """Check the first page of a large value; return its number of pages, 0 if it is in the node."""
        if not node.flags & _IS_LARGE:
            return 0
        (number,) = _NUMBER.unpack(node.content)
        count = (_HEADER.size - 1 + node.size) // self._page_size + 1
        *_, found = _LARGE_HEADER.unpack_from(self._read_page(number, _LARGE))
        if found != count or number + count > len(self._used):
            raise CorruptedPageError(f"page {number} starts {found} pages of a value instead of {count}")
        self._use(number, count)
        return count

    def _value(self, node: _Node) -> bytes:
        """Return the value of a node that `_use_large` has checked."""
        if not node.flags & _IS_LARGE:
            return node.content
        self._file.seek(_NUMBER.unpack(node.content)[0] * self._page_size + _HEADER.size)
        return self._file.read(node.size)

    def _read_page(self, number: int, kind: int) -> bytes:
        if number >= len(self._used):
            raise CorruptedPageError(f"page {number} is beyond the end of the file")
        self._file.seek(number * self._page_size)
        page = self._file.read(self._page_size)
        found, _, flags, _, _ = _HEADER.unpack_from(page)
        if found != number or flags & ~_KEPT != kind:
            raise CorruptedPageError(f"page {number} has a corrupted header")
        return page

    def _use(self, first: int, count: int) -> None:
        """Mark pages as used, or free. Each may be marked once."""
        if first + count > self._num_pages:
            raise CorruptedPageError(f"page {first + count - 1} is beyond the last page, {self._num_pages - 1}")
        for number in range(first, min(first + count, len(self._used))):
            if self._used[number]:
                raise CorruptedPageError(f"page {number} is used twice")
            self._used[number] = 1


if __name__ == "__main__":
    try:
        check_pages(Path(sys.argv[1]))
    except (CorruptedPageError, lmdb.Error) as problem:
        print(problem)

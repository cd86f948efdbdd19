"""What a disk may hold after a power cut, from the journal of a process (disk_journal.c).

A disk holds what was synced. Of later writes it holds any pages, and of later changes of names any first part, since
file systems order them.
"""

import os
import struct
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np

PAGE = 4096
_HEADER = struct.Struct("=cQQQ")
Tree = dict[str, tuple[int, int, bool]]
"""Path -> inode, size, whether it is a folder."""


@dataclass
class Event:
    """A write or a sync, and the tree after it."""

    kind: str
    """W: write, S: sync of a file, D: sync of a folder."""
    inode: int
    offset: int
    content: bytes
    tree: Tree


def compile_journal(folder: Path) -> Path:
    """Compile the library that records the journal."""
    library = folder / "disk_journal.so"
    source = Path(__file__).with_name("disk_journal.c")
    subprocess.run(["cc", "-shared", "-fPIC", "-O1", "-o", str(library), str(source), "-ldl"], check=True)
    return library


def record_journal(library: Path, program: str, root: Path, journal: Path) -> None:
    """Run a program of Python; record what it writes below `root`."""
    root.mkdir()
    variables = {"LD_PRELOAD": str(library), "JOURNAL_ROOT": str(root), "JOURNAL": str(journal)}
    subprocess.run([sys.executable, "-c", program, str(root)], check=True, env={**os.environ, **variables})


def read_journal(path: Path) -> Iterator[Event]:
    """Yield the events of a journal."""
    content = path.read_bytes()
    at = 0
    while at < len(content):
        kind, inode, offset, length = _HEADER.unpack_from(content, at)
        at += _HEADER.size
        written, at = content[at : at + length], at + length
        tree: Tree = {}
        while name := content[at : (end := content.index(0, at))]:
            number, size, type_, file = name.decode().split(" ", 3)
            tree[file] = (int(number), int(size), type_ == "d")
            at = end + 1
        at += 1
        yield Event(kind.decode(), inode, offset, written, tree)


class Disk:
    """The contents of files as processes see them, and as they were synced."""

    def __init__(self) -> None:
        self.written: dict[int, bytearray] = {}
        self.synced: dict[int, bytes] = {}
        self.trees: list[Tree] = [{}]
        """Trees since the last sync of a folder, the first one at that sync."""

    def apply(self, event: Event) -> None:
        inodes = {inode for inode, _, is_folder in event.tree.values() if not is_folder}
        for gone in self.written.keys() - inodes:
            del self.written[gone]
        for gone in self.synced.keys() - inodes - {inode for tree in self.trees for inode, _, _ in tree.values()}:
            del self.synced[gone]
        for inode, size, is_folder in event.tree.values():
            if not is_folder:
                file = self.written.setdefault(inode, bytearray())
                if event.kind == "W" and event.inode == inode:
                    file.extend(bytes(max(0, event.offset - len(file))))
                    file[event.offset : event.offset + len(event.content)] = event.content
                del file[size:]
                file.extend(bytes(size - len(file)))
        if event.kind == "S" and event.inode in self.written:
            self.synced[event.inode] = bytes(self.written[event.inode])
        self.trees = [event.tree] if event.kind == "D" else [*self.trees, event.tree]

    def require_complete(self, folder: Path) -> None:
        """Assert that the journal has all writes: after it, files are as they are in `folder`."""
        for path, (inode, _, is_folder) in self.trees[-1].items():
            is_removed = not (folder / path).exists()  # after the last write, as SQLite's log
            is_shared_memory = path.endswith("-shm")  # SQLite writes it through memory, and builds it again
            if not (is_folder or is_removed or is_shared_memory):
                assert self.written[inode] == (folder / path).read_bytes(), path

    def restore(self, folder: Path, rng: np.random.Generator, *, in_order: bool) -> None:
        """Write a possible state after a power cut to a folder."""
        folder.mkdir()
        tree = self.trees[rng.integers(len(self.trees))]
        for path, (inode, _, is_folder) in sorted(tree.items()):
            if is_folder:
                (folder / path).mkdir()
            else:
                (folder / path).write_bytes(self._content(inode, rng, in_order=in_order))

    def _content(self, inode: int, rng: np.random.Generator, *, in_order: bool) -> bytes:
        """Return what was synced with some of the pages that were written later."""
        synced = self.synced.get(inode, b"")
        written = bytes(self.written.get(inode, synced))
        content = bytearray(synced)
        changed = [at for at in range(0, len(written), PAGE) if written[at : at + PAGE] != synced[at : at + PAGE]]
        count = rng.integers(len(changed) + 1)
        for at in changed[:count] if in_order else rng.permutation(changed)[:count].tolist():
            content.extend(bytes(max(0, at - len(content))))
            content[at : at + PAGE] = written[at : at + PAGE]
        return bytes(content)

"""Atomic writes, and reads that detect damaged files."""

import hashlib
import os
import stat
from pathlib import Path
from typing import NamedTuple

# Bytes that a safetensors file may have in addition to its arrays.
HEADER = 2**20


class Checksum(NamedTuple):
    """The size and hash of a file's content."""

    bytes: int
    sha256: str


def checksum(data: bytes) -> Checksum:
    """Return the size and hash of some data."""
    return Checksum(len(data), sha256(data))


def sha256(data: bytes) -> str:
    """Return the SHA-256 hash of some data, in hexadecimal."""
    return hashlib.sha256(data).hexdigest()


def write_durably(path: Path, data: bytes) -> None:
    """Write a file under a temporary name beside it, flush it to the disk, and rename it."""
    temporary = path.with_name(f".{path.name}.tmp")
    temporary.unlink(missing_ok=True)
    try:
        with temporary.open("xb") as file:  # never through an existing link
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        temporary.rename(path)
    except BaseException:
        temporary.unlink(missing_ok=True)
        raise
    sync_folder(path.parent)


def sync_folder(folder: Path) -> None:
    """Flush a folder's list of names to the disk."""
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def append(path: Path, data: bytes) -> None:
    """Append all of the data to a file, or nothing on an error."""
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_NOFOLLOW, 0o666)
    try:
        before = os.fstat(descriptor).st_size
        try:
            rest = memoryview(data)
            while rest:
                rest = rest[os.write(descriptor, rest) :]
        except OSError:
            os.ftruncate(descriptor, before)
            raise
    finally:
        os.close(descriptor)


def read_bounded(path: Path, limit: int) -> bytes:
    """Return the content of a regular file of at most `limit` bytes; no other file is opened.

    Raises:
        ValueError: if it is not a regular file, or larger.
    """
    status = path.stat()
    if not stat.S_ISREG(status.st_mode):  # opening a pipe would wait for its other end
        raise ValueError(f"{path.name} is not an ordinary file")
    if status.st_size > limit:
        raise ValueError(f"{path.name} is larger ({status.st_size:,} bytes) than it can be ({limit:,})")
    with path.open("rb") as file:
        return file.read(limit + 1)


def read_verified(path: Path, expected: Checksum, limit: int) -> bytes:
    """Return the content of a file after comparing its size and hash with the expected ones.

    Raises:
        ValueError: if they differ, or the file has more than `limit` bytes.
    """
    data = read_bounded(path, limit)
    if len(data) != expected.bytes:
        raise ValueError(f"{path.name} has {len(data):,} bytes instead of {expected.bytes:,}")
    if sha256(data) != expected.sha256:
        raise ValueError(f"{path.name} does not match its hash")
    return data

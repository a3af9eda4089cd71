"""The memory that a run needs, and the memory that is free."""

import os
from pathlib import Path

import jax

from arac.errors import UserError


def check(needed: int, what: str, remedy: str) -> None:
    """Check that memory suffices.

    Args:
        needed: the bytes that are needed.
        what: what needs them, for the message.
        remedy: advice, for the message.

    Raises:
        UserError: if fewer bytes than `needed` are free.
    """
    free = available()
    if needed > free:
        raise UserError(f"{what} would take {in_words(needed)} of memory, and {in_words(free)} is free: {remedy}.")


def available() -> int:
    """Return the bytes that are free on JAX's device; on the CPU, within the limits of a container, too."""
    stats = jax.devices()[0].memory_stats() or {}
    if "bytes_limit" in stats:
        return stats["bytes_limit"] - stats["bytes_in_use"]
    return min(_of_machine(), *(_of_group(group) for group in _groups()))


def in_words(count: int) -> str:
    """Return a number of bytes with a suitable unit, such as 1.6 GB or 12.0 MB."""
    amount, unit = float(count), "bytes"
    for larger in ("KB", "MB", "GB", "TB", "PB"):
        if amount < 1000:
            break
        amount, unit = amount / 1000, larger
    return f"{amount:,.1f} {unit}"


def _of_machine() -> int:
    try:
        lines = Path("/proc/meminfo").read_text().splitlines()
    except OSError:  # not Linux: all the memory that is installed
        return os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    return next(int(line.split()[1]) * 1024 for line in lines if line.startswith("MemAvailable"))


def _groups() -> set[Path]:
    """Return the folders of the control groups that this process may be in."""
    root = Path("/sys/fs/cgroup")
    try:
        lines = Path("/proc/self/cgroup").read_text().splitlines()
    except OSError:
        return {root}
    own = [line.split(":", 2)[2].strip("/") for line in lines]
    return {base / name for base in (root, root / "memory") for name in ("", *own)}


def _of_group(folder: Path) -> int:
    """Return the bytes that the limit of a control group leaves. Cached files do not count: they are evicted."""
    for limit, use in (("memory.max", "memory.current"), ("memory.limit_in_bytes", "memory.usage_in_bytes")):
        try:
            stats = dict(line.split() for line in (folder / "memory.stat").read_text().splitlines())
            cached = sum(int(stats.get(f"{kind}_file", 0)) for kind in ("active", "inactive"))
            return int((folder / limit).read_text()) - int((folder / use).read_text()) + cached
        except (OSError, ValueError):  # no such group, or "max": no limit
            continue
    return 2**63

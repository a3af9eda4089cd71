"""`arac watch`."""

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import tyro

from arac.cli.common import has_screen, log, parse


@dataclass(frozen=True)
class WatchArgs:
    """Follow a run on a page in your browser: curves, population, archive, log, the latest video.

    The page is for this machine only and updates by itself. The run is only read; Ctrl-C ends the page, not the run
    (exit status 130).
    """

    run: Annotated[tyro.conf.Positional[Path], tyro.conf.arg(metavar="RUN")]
    """The run's folder."""
    port: int = 0
    """Port of the page; default: a free one."""
    no_browser: Annotated[bool, tyro.conf.FlagCreatePairsOff] = False
    """Only print the address."""


def watch(argv: list[str]) -> None:
    """Carry out `arac watch`."""
    import webbrowser

    from arac.watch.server import Server

    args = parse(WatchArgs, "watch", argv)

    with Server(args.run, args.port) as server:
        log(f"{args.run} is shown at {server.address} - Ctrl-C ends the page, not the run")
        if not args.no_browser and has_screen():
            webbrowser.open(server.address)
        server.serve_forever()

"""everlearn serve: the HTTP service and the live page."""

from __future__ import annotations

from pathlib import Path

import click
from rich.console import Console

from everlearn.cli.common import errors_explained

_EXAMPLES = """
Examples:

\b
  everlearn serve --state run.db
  everlearn serve --state run.db --port 9000
  everlearn serve --state run.db --host 0.0.0.0 --token-file token.txt

\b
While it runs, from another terminal:
  curl http://127.0.0.1:8765/models/machine/learn -H 'Content-Type: application/json' \\
    -d '{"columns": ["rpm", "torque"], "rows": [[900, 21.5], [905, 21.9]]}'
"""


@click.command(epilog=_EXAMPLES)
@click.option("--state", required=True, type=click.Path(dir_okay=False), help="State file; made if it is not there.")
@click.option("--host", default="127.0.0.1", show_default=True, help="Address to listen on; others need a token.")
@click.option("--port", default=8765, show_default=True, type=click.IntRange(0, 65535), help="0 takes any free port.")
@click.option("--token-file", type=click.Path(exists=True, dir_okay=False), help="File with the token for clients.")
@click.option("--token", envvar="EVERLEARN_TOKEN", hidden=True)
@click.option("--max-body-mib", default=8, show_default=True, type=click.IntRange(1, 1024), help="Largest request.")
@click.option(
    "--rate", default=500.0, show_default=True, type=click.FloatRange(1.0), help="Requests per second from one client."
)
@click.option("--read-token-file", type=click.Path(exists=True, dir_okay=False), help="The same, for questions only.")
@click.option(
    "--header-seconds", default=10.0, show_default=True, type=click.FloatRange(0.1), help="Time to begin a request."
)
@click.option(
    "--connections-per-address", default=200, show_default=True, type=click.IntRange(1), help="Raise it behind a proxy."
)
@click.option("--quiet", is_flag=True, help="Print nothing but errors.")
def command(
    state: str,
    host: str,
    port: int,
    token_file: str | None,
    token: str | None,
    max_body_mib: int,
    rate: float,
    read_token_file: str | None,
    header_seconds: float,
    connections_per_address: int,
    quiet: bool,
) -> None:
    """Serve models over HTTP: learn, score, predict, sample, merge, and a live page.

    Rows are on the disk before they are acknowledged, and each is learned once. The page also shows what `everlearn
    learn --state` writes, or wrote, to the same file.

    The environment variable EVERLEARN_TOKEN can hold the token in place of a file.
    """
    console = Console(quiet=quiet, highlight=False)
    with errors_explained():
        from everlearn.base.interrupts import HeldInterrupts

        with HeldInterrupts():  # while Python imports, an interrupt could be lost
            from everlearn.service.server import serve
            from everlearn.service.settings import MIB, Limits, Settings

        if token_file is not None:
            token = _token_in(token_file)
        limits = Limits(
            body_bytes=max_body_mib * MIB,
            requests_per_second=rate,
            header_seconds=header_seconds,
            connections_per_address=connections_per_address,
        )
        read_token = None if read_token_file is None else _token_in(read_token_file)
        settings = Settings(host=host, port=port, token=token or None, read_token=read_token, limits=limits)
        serve(state, settings, lambda url: console.print(f"Live page: [bold]{url}[/]   (Ctrl-C stops)"))


def _token_in(path: str) -> str:
    return Path(path).read_text(encoding="utf-8", errors="replace").strip()

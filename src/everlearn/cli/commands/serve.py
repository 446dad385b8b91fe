"""everlearn serve: the HTTP service and the live page."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click
from rich.console import Console

from everlearn.cli.common import check_place, errors_explained
from everlearn.cli.serve_options import chosen_limits, limit_options

_EXAMPLES = """
Examples:

\b
  everlearn serve --state run.db
  everlearn serve --state run.db --port 9000
  everlearn serve --state run.db --host 0.0.0.0 --token-file token.txt
  everlearn serve --state run.db --tokens tokens.txt --root-path /everlearn --trusted-proxy 127.0.0.1 \\
    --access-log --log-format json

\b
While it runs, from another terminal:
  curl http://127.0.0.1:8765/models/machine/learn -H 'Content-Type: application/json' \\
    -d '{"columns": ["rpm", "torque"], "rows": [[900, 21.5], [905, 21.9]]}'
"""
_FILE = click.Path(exists=True, dir_okay=False)


@click.command(epilog=_EXAMPLES)
@click.option(
    "--state",
    required=True,
    type=click.Path(dir_okay=False),
    envvar="EVERLEARN_STATE",
    help="State file; made if it is not there.",
)
@click.option(
    "--host",
    default="127.0.0.1",
    show_default=True,
    envvar="EVERLEARN_HOST",
    help="Address to listen on; others need a token.",
)
@click.option(
    "--port",
    default=8765,
    show_default=True,
    envvar="EVERLEARN_PORT",
    type=click.IntRange(0, 65535),
    help="0 takes any free port.",
)
@click.option("--token-file", type=_FILE, help="File with the token for clients.")
@click.option("--read-token-file", type=_FILE, help="The same, for questions only.")
@click.option(
    "--tokens", "tokens_file", type=_FILE, help="File with lines: NAME read|write TOKEN [REQUESTS-PER-SECOND]."
)
@click.option("--token", envvar="EVERLEARN_TOKEN", hidden=True)
@click.option("--read-token", envvar="EVERLEARN_READ_TOKEN", hidden=True)
@click.option(
    "--root-path", default="", envvar="EVERLEARN_ROOT_PATH", help="Path under which a proxy shows it: /everlearn."
)
@click.option(
    "--trusted-proxy",
    "trusted_proxies",
    multiple=True,
    envvar="EVERLEARN_TRUSTED_PROXIES",
    help="Address or network of a proxy whose X-Forwarded headers are believed; may be given several times.",
)
@click.option(
    "--access-log/--no-access-log",
    envvar="EVERLEARN_ACCESS_LOG",
    help="Log each request, on the standard error stream.",
)
@click.option(
    "--log-format",
    default="text",
    show_default=True,
    type=click.Choice(["text", "json"]),
    envvar="EVERLEARN_LOG_FORMAT",
    help="How entries of the log are written.",
)
@click.option(
    "--log-level",
    default="warning",
    show_default=True,
    type=click.Choice(["debug", "info", "warning", "error"]),
    envvar="EVERLEARN_LOG_LEVEL",
    help="What is logged.",
)
@click.option(
    "--quick-answers",
    is_flag=True,
    envvar="EVERLEARN_QUICK_ANSWERS",
    help="Answer from components as the rows have left them, without a search before a question.",
)
@limit_options
@click.option("--quiet", is_flag=True, help="Print nothing but errors.")
def command(state: str, quiet: bool, **options: Any) -> None:
    """Serve models over HTTP: learn, score, predict, sample, merge, and a live page.

    Rows are on the disk before they are acknowledged, and each is learned once. The page also shows what `everlearn
    learn --state` writes, or wrote, to the same file.

    Most options can be given in the environment, too: EVERLEARN_MAX_MODELS is --max-models. EVERLEARN_TOKEN and
    EVERLEARN_READ_TOKEN hold tokens in place of files.
    """
    console = Console(quiet=quiet, highlight=False)
    check_place(state, "--state", "state")
    with errors_explained():
        from everlearn.base.interrupts import HeldInterrupts

        with HeldInterrupts():  # while Python imports, an interrupt could be lost
            from everlearn.service.server import serve
            from everlearn.service.settings import Settings, read_tokens

        for name in ("token", "read_token"):
            path = options.pop(f"{name}_file")
            # Hidden options take tokens from the environment: on a command line every user of the machine could read
            # them.
            options[name] = _token_in(path) if path is not None else options[name] or None
        tokens_file = options.pop("tokens_file")
        tokens = () if tokens_file is None else read_tokens(tokens_file)
        settings = Settings(limits=chosen_limits(options), tokens=tokens, **options)
        serve(state, settings, lambda url: console.print(f"Live page: [bold]{url}[/]   (Ctrl-C stops)"))


def _token_in(path: str) -> str:
    return Path(path).read_text(encoding="utf-8", errors="replace").strip()

"""everlearn mark: what a person says of an episode."""

from __future__ import annotations

import click

from everlearn.cli.common import errors_explained

_EXAMPLES = """
Examples:

\b
  everlearn mark 3 --normal --state run.db
  everlearn mark 5 --fault --state run.db

--normal: an episode that lasts ends, and the like is not told again. --fault: the like is an alarm at once. --seen: it
needs no attention any more. The watcher that runs on the same state file takes note within a second or two.
"""


@click.command(name="mark", epilog=_EXAMPLES)
@click.argument("episode", type=click.IntRange(min=1))
@click.option("--normal", "verdict", flag_value="normal", help="It was no fault.")
@click.option("--fault", "verdict", flag_value="fault", help="It was a fault.")
@click.option("--seen", "verdict", flag_value="seen", help="Somebody looks after it.")
@click.option(
    "--state", required=True, type=click.Path(exists=True, dir_okay=False), help="The state file of the watch."
)
@click.option("--name", default="model", show_default=True, help="The name in the state file, or the device.")
def command(episode: int, verdict: str | None, state: str, name: str) -> None:
    """Say whether an episode was normal or a fault; EPISODE is its number."""
    if verdict is None:
        raise click.UsageError("Say what the episode was: --normal, --fault or --seen.")
    from everlearn.streams.store.store import Store
    from everlearn.watch.session import mark_episode

    with errors_explained(), Store(state, create=False) as store:
        found = mark_episode(store, name, episode, verdict)
    click.echo(f"Episode {found.number} is marked as {verdict}: {found.sentence}")

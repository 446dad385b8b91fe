"""Run the program with `python -m everlearn.cli`."""

from everlearn.cli import main

main(prog_name="everlearn")

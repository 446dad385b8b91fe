"""Run the program with `python -m everlearn`."""

from everlearn.cli import main

if __name__ == "__main__":
    main(prog_name="everlearn")

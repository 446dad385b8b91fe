"""How many examples Hypothesis tries where each takes long: a share of what the profile asks for."""

from hypothesis import settings

USUAL = 30  # examples of the profile that CI has


def examples(n):
    """`n` examples in CI; as much more of them as another profile tries more."""
    return settings(max_examples=max(n * settings.default.max_examples // USUAL, 1))

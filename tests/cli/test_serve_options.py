"""Every limit of the service is an option of `everlearn serve`, and a variable of the environment."""

import dataclasses

import pytest
from click.testing import CliRunner

from everlearn.cli.commands.serve import command
from everlearn.cli.serve_options import LIMIT_OPTIONS
from everlearn.service import server
from everlearn.service.settings import Limits


@pytest.fixture
def settings(monkeypatch, tmp_path):
    """Run `everlearn serve` with options, and give the settings that it would serve with."""
    found = []
    monkeypatch.setattr(server, "serve", lambda state, settings, ready: found.append(settings))

    def run(*options, **environment):
        done = CliRunner().invoke(command, ["--state", str(tmp_path / "run.db"), *options], env=environment)
        assert done.exit_code == 0, done.output
        return found.pop()

    return run


def test_there_is_an_option_for_every_limit(settings):
    assert {option.field for option in LIMIT_OPTIONS} == {field.name for field in dataclasses.fields(Limits)}
    assert settings().limits == Limits()


@pytest.mark.parametrize("option", LIMIT_OPTIONS, ids=lambda option: option.field)
def test_options_and_variables_set_the_limit(settings, option):
    given = settings(option.option, "7").limits
    assert given == dataclasses.replace(Limits(), **{option.field: 7 * option.unit})
    variable = f"EVERLEARN_{option.option[2:].replace('-', '_').upper()}"
    assert settings(**{variable: "7"}).limits == given


def test_tokens_and_proxies(settings, tmp_path):
    tokens = tmp_path / "tokens.txt"
    tokens.write_text("gateway write a-secret-of-some-length 20\n")
    found = settings("--tokens", str(tokens), "--root-path", "/x", "--trusted-proxy", "10.0.0.1", "--access-log")
    assert [(token.name, token.rate) for token in found.all_tokens] == [("gateway", 20.0)]
    assert (found.root_path, found.trusted_proxies, found.access_log) == ("/x", ("10.0.0.1",), True)
    found = settings(EVERLEARN_TOKEN="t" * 16, EVERLEARN_READ_TOKEN="r" * 16, EVERLEARN_TRUSTED_PROXIES="10.0.0.1 ::1")
    assert [token.may for token in found.all_tokens] == ["write", "read"]
    assert found.trusted_proxies == ("10.0.0.1", "::1")


def test_quick_answers(settings):
    assert not settings().quick_answers
    assert settings("--quick-answers").quick_answers
    assert settings(EVERLEARN_QUICK_ANSWERS="1").quick_answers

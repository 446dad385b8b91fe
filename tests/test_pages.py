"""Pages of the benchmarks: written whole, from one run or from parts that ran each on its own."""

import ast
import importlib
import importlib.util
import json
import re
import subprocess
from pathlib import Path

import numpy as np
import pytest

MADE = {"commit": "abc", "changed": [], "versions": {}, "machine": "here", "finished": "later"}


@pytest.fixture
def page(repository, tmp_path, monkeypatch):
    monkeypatch.syspath_prepend(str(repository / "benchmarks"))
    module = importlib.import_module("_page")
    monkeypatch.setattr(module, "RESULTS", tmp_path)
    return module


def write_part(page, monkeypatch, part, body, figures, **made):
    monkeypatch.setattr(page, "finished", lambda: {**MADE, **made})
    page.write_part("shown", part, body, figures=figures)


def test_a_page_is_made_of_the_parts_that_are_there(page, tmp_path, monkeypatch):
    first, second = "## One\n\nA.\n", "## Two\n\n| a |\n|---|\n| 3 |\n"
    write_part(page, monkeypatch, "two", second, {"kills": 3}, command="do two", started="2026-01-02")
    page.write_page_of_parts("shown", "Shown", ("one", "two"))
    assert "do two" in (tmp_path / "shown.md").read_text()
    write_part(page, monkeypatch, "one", first, {"inputs": 5}, command="do one", started="2026-01-01", machine="there")
    page.write_page_of_parts("shown", "Shown", ("one", "two"))
    text = (tmp_path / "shown.md").read_text()
    assert text.startswith("# Shown\n\n## One\n")
    assert text.index("do one") < text.index("there") < text.index("## Two") < text.index("do two")
    record = page.read("shown")
    assert record["figures"] == {"inputs": 5, "kills": 3}
    assert record["origin"]["command"] == "do one", "the page is as old as its oldest part"
    assert record["tables"] == [{"heading": "Two", "columns": ["a"], "rows": [["3"]]}]


def test_a_quick_run_writes_nothing(page, tmp_path, capsys):
    page.write_part("shown", "one", "## One\n", quick=True)
    page.write_page("shown", "# Shown\n", quick=True)
    assert list(tmp_path.iterdir()) == []
    assert "stays as it is" in capsys.readouterr().err


def test_code_is_the_same_whatever_its_comments_say(page, tmp_path):
    folder = tmp_path / "folder"
    folder.mkdir()
    (folder / "a.py").write_text("x = 1\n")
    before = page.code_digest(folder)
    (folder / "a.py").write_text("# Why.\n\nx = 1\n")
    assert page.code_digest(folder) == before
    (folder / "a.py").write_text("x = 2\n")
    assert page.code_digest(folder) != before
    (folder / "a.py").rename(folder / "b.py")
    assert page.code_digest(folder) != before


@pytest.fixture
def runner(page, repository, tmp_path, monkeypatch):
    spec = importlib.util.spec_from_file_location("benchmarks_main", repository / "benchmarks" / "__main__.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    monkeypatch.setattr(module, "RESULTS", tmp_path)
    return module


def test_a_page_is_stale_when_the_code_it_measures_has_changed(page, runner, tmp_path):
    reduction = runner.BENCHMARKS["reduction"]
    assert runner.why_stale("reduction", reduction) == "it was never made"
    places = ("src/everlearn/gaussian", "src/everlearn/linalg", "benchmarks/reduction.py")
    code = {place: page.code_digest(page.ROOT / place) for place in places}
    origin = {"commit": "0" * 40, "changed": [], "code": code}

    def why(**parts):
        record = {"origin": origin, **({"parts": parts} if parts else {})}
        (tmp_path / "reduction.json").write_text(json.dumps(record))
        return runner.why_stale("reduction", reduction)

    assert why() == ""
    assert why(one=origin, two=origin) == ""
    old = {**origin, "code": {**code, "src/everlearn/linalg": "0"}}
    assert why(one=origin, two=old) == "changed since 000000000000: src/everlearn/linalg"
    assert "not committed: x" in why(one={**origin, "changed": ["x"]})


def test_comments_are_no_change_since_a_commit(page, runner, tmp_path, monkeypatch):
    stale = importlib.import_module("_stale")
    monkeypatch.setattr(stale, "ROOT", tmp_path)

    def git(*words):
        command = ["git", "-C", tmp_path, "-c", "user.name=x", "-c", "user.email=x@example.com", *words]
        return subprocess.run(command, check=True, capture_output=True, text=True).stdout.strip()

    git("init", "-q")
    code = tmp_path / "a.py"
    code.write_text("x = 1\n")
    git("add", "a.py")
    git("commit", "-qm", "x")
    commit = git("rev-parse", "HEAD")
    code.write_text("    # why\nx = 1\n")
    assert stale.changed_since(commit, ["a.py"]) == []
    code.write_text("# why\nx = 2\n")
    assert stale.changed_since(commit, ["a.py"]) == ["a.py"]
    assert "not known" in stale.changed_since("0" * 40, ["a.py"])[0]


def test_files_of_shared_folders_count_where_they_are_imported(page, runner, tmp_path, monkeypatch):
    """Eigenproblems of few rows are those of low-rank mixtures: a change there says nothing of others."""
    folders = {name: runner.BENCHMARKS[name].folders for name in ("weka", "wide")}
    files = {name: runner.files_of(own) for name, own in folders.items()}
    shared = "src/everlearn/linalg/eigen.py"
    assert shared in files["wide"]
    assert shared not in files["weka"]
    assert {"src/everlearn/linalg/dense.py", "src/everlearn/mixture/learn.py"} <= set(files["weka"])
    # Folders that every model is made of, alone: they count whole.
    assert shared in runner.files_of(("gaussian", "linalg"))

    changed = [shared]
    monkeypatch.setattr("_stale.is_known", lambda commit: commit == "1" * 40)
    monkeypatch.setattr("_stale.changed_since", lambda commit, files: [file for file in changed if file in files])

    def why(name, commit="1" * 40, **others):
        benchmark = runner.BENCHMARKS[name]
        places = [f"src/everlearn/{folder}" for folder in benchmark.folders] + [f"benchmarks/{benchmark.script}"]
        code = {place: page.code_digest(page.ROOT / place) for place in places}
        origin = {"commit": commit, "changed": [], "code": {**code, "src/everlearn/linalg": "0", **others}}
        (tmp_path / f"{name}.json").write_text(json.dumps({"origin": origin}))
        return runner.why_stale(name, benchmark)

    assert why("weka") == ""
    assert why("wide") == f"changed since {'1' * 12}: {shared}"
    assert why("weka", commit="0" * 40) == "changed since 000000000000: src/everlearn/linalg"
    assert why("weka", **{"src/everlearn/mixture": "0"}) == f"changed since {'1' * 12}: src/everlearn/mixture"
    changed.append("src/everlearn/linalg/dense.py")
    assert why("weka") == f"changed since {'1' * 12}: src/everlearn/linalg/dense.py"


def test_every_benchmark_names_folders_that_exist(runner, repository):
    for name, benchmark in runner.BENCHMARKS.items():
        assert (repository / "benchmarks" / benchmark.script).is_file(), name
        for folder in benchmark.folders:
            assert (repository / "src" / "everlearn" / folder / "__init__.py").is_file(), (name, folder)


def test_every_script_that_writes_a_page_is_run_by_the_command(runner, repository):
    scripts = {
        path.name
        for path in (repository / "benchmarks").glob("[a-z]*.py")
        if re.search("(write|printed)_page", path.read_text())
    }
    scripts.add("reproduction.py")  # its pages are in docs, and the program writes them
    assert scripts == {benchmark.script for benchmark in runner.BENCHMARKS.values()}


def test_files_with_changes_are_named_whole(page, monkeypatch):
    """Git marks the first one by a blank before the letter, which is stripped with the end of the output."""
    told = {"status": "M benchmarks/a.py\n M src/b.py\nMM src/c.py", "rev-parse": "0" * 40}
    monkeypatch.setattr(page, "_git", lambda verb, *_: told[verb])
    assert page.origin.__wrapped__()["changed"] == ["benchmarks/a.py", "src/b.py", "src/c.py"]


def test_a_page_says_how_long_it_took_and_the_list_shows_it(page, runner):
    page.write_page("rates", "# Rates\n")
    made = page.read("rates")["origin"]
    assert made["seconds"] >= 0
    assert made["cpu_seconds"] > 0
    assert f", load {made['load']} at the start;" in (page.RESULTS / "rates.md").read_text()
    assert runner.last_seconds("rates") == made["seconds"]
    assert runner.describe("rates").split()[:3] == ["rates", f"{made['seconds']:,.0f}", "s"]
    assert runner.last_seconds("ppca") is None
    assert "unknown" in runner.describe("ppca")


def test_seconds_of_a_page_are_those_of_its_parts_and_older_ones_tell_minutes(page, runner, tmp_path):
    parts = {
        "shown_one": {"seconds": 90.5, "started": "", "finished": ""},
        "shown_two": {"started": "2026-01-01 23:59 UTC", "finished": "2026-01-02 00:01 UTC"},
    }
    (tmp_path / "fleet.json").write_text(json.dumps({"origin": parts["shown_one"], "parts": parts}))
    assert runner.last_seconds("fleet") == 90.5 + 120


def test_resume_runs_the_stale_ones_only_and_all_say_how_long_they_took(runner, monkeypatch, capsys):
    ran = []
    monkeypatch.setattr(runner, "why_stale", lambda name, benchmark: "old" if name in ("ppca", "rates") else "")
    monkeypatch.setattr(runner, "run", lambda name, quick, resume: ran.append(name) or (name == "rates"))
    written = []
    monkeypatch.setattr(runner, "write_documents", lambda: written.append(1))
    monkeypatch.setattr("sys.argv", ["benchmarks", "--resume"])
    with pytest.raises(SystemExit, match="failed: rates"):
        runner.main()
    assert ran == ["ppca", "rates"]
    assert written == [1], "documents show the pages that were made"
    lines = capsys.readouterr().out.splitlines()
    assert [line.split()[0] for line in lines] == ["ppca", "rates", "all"]
    assert "failed" in lines[1]
    assert lines[2].endswith("2 of 2 ran")


def test_an_interrupted_run_says_what_it_has_done(runner, monkeypatch, capsys):
    def run(name, quick, resume):
        if name == "rates":
            raise KeyboardInterrupt
        return 0

    monkeypatch.setattr(runner, "run", run)
    with pytest.raises(KeyboardInterrupt):
        runner.run_all(["ppca", "rates", "scale"], quick=False)
    assert capsys.readouterr().out.splitlines()[-1].endswith("1 of 3 ran")


# -- the reproduction ------------------------------------------------------------------------------

ITEMS = {"figmn:table1": "figmn", "online-vb:fig4": "online-vb"}


@pytest.fixture
def reproduction(page, runner, tmp_path, monkeypatch):
    """The reproduction of two items in a folder of its own; the program is not run, what it is asked for is kept."""
    module = runner.reproduction
    monkeypatch.setattr(module, "RECORD", tmp_path / "reproduction.json")
    monkeypatch.setattr(module, "PARTIAL", tmp_path / "reproduction.partial.json")
    monkeypatch.setattr(module, "all_items", lambda: list(ITEMS))
    monkeypatch.setattr(module.subprocess, "run", lambda command, **_: asked.append(["estimates", *command[2:]]))
    asked = []

    def reproduce(*arguments):
        asked.append(list(arguments))
        if "--json" in arguments and not {"--merge", "--render"} & set(arguments):
            keys = [a for a in arguments if a in ITEMS] or list(ITEMS)
            write_sections(module.PARTIAL, {key: section(key, "new") for key in keys})

    monkeypatch.setattr(module, "reproduce", reproduce)
    module.asked = asked
    return module


def section(key, commit, verdict="reproduced"):
    return {"paper": ITEMS[key], "seconds": 30.0, "verdict": verdict, "made": {"commit": commit}}


def write_sections(path, sections):
    path.write_text(json.dumps({"sections": sections}))


def run_reproduction(module, monkeypatch, *arguments):
    module.asked.clear()
    monkeypatch.setattr("sys.argv", ["reproduction.py", *arguments])
    module.main()
    return module.asked


def test_the_reproduction_is_an_entry_with_its_own_time_and_reasons(reproduction, runner, monkeypatch, capsys):
    assert "2 of 2 items, figmn:table1 the first: it was never run" in "\n".join(runner.stale())
    assert "unknown" in runner.describe("reproduction")
    changed = {"old": ["src/everlearn/variational/learn.py"], "new": []}
    monkeypatch.setattr(
        "_stale.changed_since",
        lambda commit, places: [file for file in changed[commit] if file.startswith(tuple(places))],
    )
    write_sections(reproduction.RECORD, {key: section(key, "old") for key in ITEMS})
    assert runner.why_stale("reproduction", None) == (
        "1 of 2 items, online-vb:fig4 the first: changed since old: src/everlearn/variational/learn.py"
    )
    assert runner.describe("reproduction").split()[:3] == ["reproduction", "60", "s"]
    write_sections(reproduction.RECORD, {key: section(key, "new") for key in ITEMS})
    assert runner.why_stale("reproduction", None) == ""
    write_sections(reproduction.RECORD, {key: section(key, "new+") for key in ITEMS})
    assert "not committed" in runner.why_stale("reproduction", None)


def test_items_depend_on_the_models_that_their_scripts_import(page, runner):
    module = runner.reproduction
    assert set(module.scripts()) == set(module.all_items())
    on = {item: {Path(place).name for place in module.places(path)} for item, path in module.scripts().items()}
    for item, folder in (("figmn:table5", "agents"), ("continual:disjoint", "networks"), ("figmn:mnist", "digits.py")):
        assert folder in on[item]
    assert {"mixture", "variational", "eigen.py", "interrupts.py"} <= on["nat-oem:mixtures"]
    # Of what every model is made of, files that are not imported do not count.
    assert "dense.py" in on["figmn:table5"]
    assert "eigen.py" not in on["figmn:table5"]
    assert "mixture" not in on["figmn:table5"] | on["online-vb:prior"]
    assert all((runner.ROOT / place).exists() for path in module.scripts().values() for place in module.places(path))


def test_a_whole_run_of_the_reproduction_is_the_record_and_a_resumed_one_runs_the_rest(reproduction, monkeypatch):
    write_sections(reproduction.RECORD, {key: section(key, "old") for key in ITEMS})
    ran, rendered, estimates = run_reproduction(reproduction, monkeypatch)
    assert ran[:2] == ["--json", str(reproduction.PARTIAL)]
    assert "--resume" not in ran
    assert rendered[0] == "--render"
    assert estimates == ["estimates", str(reproduction.RECORD)]
    assert {s["made"]["commit"] for s in reproduction.read(reproduction.RECORD).values()} == {"new"}
    assert not reproduction.PARTIAL.exists()

    monkeypatch.setattr(reproduction, "stale_items", lambda items: {"online-vb:fig4": "old"})
    write_sections(reproduction.PARTIAL, {"figmn:table1": section("figmn:table1", "new")})
    asked = run_reproduction(reproduction, monkeypatch, "--resume")
    assert [call[0] for call in asked] == ["--merge", "estimates", "online-vb:fig4", "--merge", "estimates"]
    assert "--resume" in asked[2]


def test_items_that_were_skipped_do_not_take_the_place_of_a_record(reproduction, monkeypatch):
    write_sections(reproduction.RECORD, {key: section(key, "old") for key in ITEMS})
    sections = {key: section(key, "new", "skipped" if key == "figmn:table1" else "reproduced") for key in ITEMS}
    write_sections(reproduction.PARTIAL, sections)
    reproduction.take_partial()
    assert reproduction.asked[0][:2] == ["--merge", str(reproduction.PARTIAL)]


def test_a_quick_reproduction_leaves_the_record_alone(reproduction, tmp_path, monkeypatch):
    (asked,) = run_reproduction(reproduction, monkeypatch, "--quick")
    assert asked[0] == "--quick"
    assert not any(str(part).startswith(str(reproduction.RECORD.parent / "repro")) for part in asked)
    assert not reproduction.RECORD.exists()


def test_only_the_reproduction_is_told_to_resume(runner, monkeypatch):
    commands = []

    class Done:
        returncode = 0

    monkeypatch.setattr(runner.subprocess, "run", lambda command, **_: commands.append(command[1:]) or Done)
    for quick in (False, True):
        for name in ("rates", "reproduction"):
            runner.run(name, quick=quick, resume=True)
    assert commands == [
        ["benchmarks/rates.py"],
        ["benchmarks/reproduction.py", "--resume"],
        ["benchmarks/rates.py", "--quick"],
        ["benchmarks/reproduction.py", "--quick"],
    ]


def test_every_item_has_an_estimate(runner):
    from everlearn.experiments.papers import choose

    assert runner.reproduction.all_items() == [item.key for item in choose()]


def scripts_of_pages():
    """Names of the scripts that `make results` runs."""
    main = Path(__file__).parents[1] / "benchmarks" / "__main__.py"
    return re.findall(r'Benchmark\("(\w+\.py)"', main.read_text(encoding="utf-8"))


@pytest.mark.parametrize("script", scripts_of_pages())
def test_a_page_is_made_without_arguments_that_only_its_author_knows(repository, script):
    calls = [
        node
        for node in ast.walk(ast.parse((repository / "benchmarks" / script).read_text(encoding="utf-8")))
        if isinstance(node, ast.Call) and getattr(node.func, "attr", "") == "add_argument"
        if isinstance(node.args[0], ast.Constant)
    ]
    for call in calls:
        given = {keyword.arg: ast.unparse(keyword.value) for keyword in call.keywords}
        needed = not call.args[0].value.startswith("-") and given.get("nargs") not in ("'*'", "'?'")
        assert not needed, f"{ast.unparse(call)}: python benchmarks gives none"
        assert "required" not in given, ast.unparse(call)


def test_scores_of_one_law_differ_by_nothing_in_percent(repository, monkeypatch):
    """Means of ratios would differ by several percent, in favour of what they are in percent of."""
    monkeypatch.syspath_prepend(str(repository / "benchmarks"))
    difference = importlib.import_module("fleet").difference
    rng, found = np.random.default_rng(0), []
    for _ in range(300):
        a, b = rng.normal(-5.6, 1.0, (2, 100))
        found.append((difference(b, a), difference(a, b), np.mean((b - a) / np.abs(a))))
    percent = np.array([one.percent for one, _, _ in found])
    errors = np.array([one.percent_error for one, _, _ in found])
    assert abs(percent.mean()) < 4 * percent.std() / len(percent) ** 0.5 + 0.05
    assert np.mean([ratios for _, _, ratios in found]) < -0.02
    assert errors.mean() == pytest.approx(percent.std(), rel=0.15)
    forth, back, _ = found[0]
    assert forth.nats == -back.nats
    assert forth.nats_error == back.nats_error
    assert forth.percent == pytest.approx(-back.percent, rel=0.1)

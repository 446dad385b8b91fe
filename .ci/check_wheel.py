"""Build sdist and wheel and use them in new environments without extras, on the oldest and the newest Python here.

    python .ci/check_wheel.py [--all]

Each environment learns, saves, loads and scores, and runs the program; what it exports to C is compiled and asked. On
the newest Python the extra for ONNX is added then, and its graph asked. The wheel is made from the sdist, so that both
are tried. `--all` tries every Python that is found. For each version up to NEXT, found or not, the requirements must
resolve to wheels.
"""

import functools
import os
import shutil
import subprocess
import sys
import tarfile
import tempfile
import time
import zipfile
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

ROOT = Path(__file__).parents[1]
OLDEST, NEXT = (3, 11), (3, 14)
SMOKE = """
import sys
import numpy as np
import everlearn
assert sys.argv[1] in everlearn.__file__, everlearn.__file__
X = np.random.default_rng(0).normal(size=(400, 2))
X[::7, 1] = np.nan
model = everlearn.IncrementalGaussianMixture(2).fit(X)
model.save("m.evl")
np.testing.assert_array_equal(everlearn.load("m.evl").score_samples(X), model.score_samples(X))
assert not np.isnan(model.impute(X)).any()
"""
# A model in a language without Python answers as it does; the demonstration's file is what the program wrote.
C_ANSWERS = """
import ctypes, subprocess, sys
import numpy as np
import everlearn
subprocess.run([sys.argv[1], "-std=c99", "-O2", "-fPIC", "-shared", "-o", "m.so", "m.c", "-lm"], check=True)
library, state = ctypes.CDLL("./m.so"), ctypes.create_string_buffer(1 << 16)
library.everlearn_log_density.restype = ctypes.c_double
library.everlearn_init(state)
X = np.random.default_rng(1).normal(size=(50, 2))
found = [library.everlearn_log_density(state, row.ctypes.data_as(ctypes.POINTER(ctypes.c_double))) for row in X]
np.testing.assert_allclose(found, everlearn.load("m.evl").score_samples(X), rtol=1e-12, atol=1e-12)
"""
ONNX_ANSWERS = """
import numpy as np
import everlearn
import onnxruntime
session = onnxruntime.InferenceSession("m.onnx", providers=["CPUExecutionProvider"])
X = np.random.default_rng(1).normal(size=(50, 2))
names = [output.name for output in session.get_outputs()]
found = dict(zip(names, session.run(names, {"X": X})))
np.testing.assert_allclose(found["log_density"].ravel(), everlearn.load("m.evl").score_samples(X), atol=1e-6)
"""


def run(*command, **options):
    """Run a command and return its output; what it said is shown where it fails."""
    result = subprocess.run([*map(str, command)], capture_output=True, text=True, check=False, **options)
    assert result.returncode == 0, f"{' '.join(map(str, command))}\n{result.stdout}{result.stderr}"
    return result.stdout


def check_contents(wheel: Path, sdist: Path) -> None:
    names = zipfile.ZipFile(wheel).namelist()
    strays = [name for name in names if not name.startswith(("everlearn/", "everlearn-"))]
    assert not strays, f"files outside the package: {strays}"
    assert "everlearn/py.typed" in names, "py.typed is missing, so type checkers ignore the package"
    assert any(name.endswith("licenses/LICENSE") for name in names), "the licence is missing"
    missing = set(run("git", "ls-files", ".", cwd=ROOT / "src").split()) - set(names)
    assert not missing, f"files missing from the wheel: {sorted(missing)}"
    with tarfile.open(sdist) as archive:
        held = {name.partition("/")[2] for name in archive.getnames()}
    for name in ("pyproject.toml", "README.md", "LICENSE", "CHANGELOG.md", "Makefile", "tests/conftest.py"):
        assert name in held, f"{name} is missing from the sdist"


def interpreters() -> dict[tuple[int, int], Path]:
    """Pythons on the path or kept by pyenv that everlearn supports, by version."""
    places = [*map(Path, os.environ["PATH"].split(os.pathsep)), *Path.home().glob(".pyenv/versions/*/bin")]
    found = {}
    for place in [Path(sys.base_prefix, "bin"), *places]:
        for program in sorted(place.glob("python3.[0-9]*")):
            version = version_of(program) if program.name.count("-") == 0 else None
            if version is not None and version >= OLDEST:
                found.setdefault(version, program)
    return found


@functools.cache
def version_of(program: Path) -> tuple[int, int] | None:
    code = "import sys, venv, ensurepip; print(*sys.version_info[:2])"
    # A shim of pyenv fails for versions that are installed and not chosen; those are found in their own folders.
    result = subprocess.run([program, "-c", code], capture_output=True, text=True, check=False)
    return tuple(map(int, result.stdout.split())) if result.returncode == 0 else None


def try_wheel(python: Path, wheel: Path, folder: Path, *, onnx: bool) -> str:
    """Install the wheel with what it requires into a new environment, and use it."""
    started = time.monotonic()
    run(python, "-m", "venv", folder)
    binaries = folder / "bin"
    pip = ("-m", "pip", "install", "--quiet", "--disable-pip-version-check", "--no-compile", "--only-binary", ":all:")
    run(binaries / "python", *pip, wheel)
    environment = {name: value for name, value in os.environ.items() if name not in ("PYTHONPATH", "VIRTUAL_ENV")}
    installed = functools.partial(run, cwd=folder, env=environment)
    installed(binaries / "python", "-c", SMOKE, folder)
    compiler = shutil.which("cc") or shutil.which("gcc") or shutil.which("clang")
    installed(binaries / "everlearn", "export", "m.evl", "--to", "c", "--output", "m.c", "--quiet")
    if compiler:
        installed(binaries / "python", "-c", C_ANSWERS, compiler)
    installed(binaries / "everlearn", "learn", "--demo", "--rows", "600", "--model-file", "demo.evl", "--quiet")
    assert "rpm" in installed(binaries / "everlearn", "show", "demo.evl")
    if onnx:
        run(binaries / "python", *pip, f"{wheel}[onnx]", "onnxruntime>=1.18")
        installed(binaries / "everlearn", "export", "m.evl", "--to", "onnx", "--output", "m.onnx", "--quiet")
        installed(binaries / "python", "-c", ONNX_ANSWERS)
    languages = " and ".join(["C"] * bool(compiler) + ["ONNX"] * onnx) or "C, which was not compiled"
    return f"{python}: learns, saves, loads, answers in {languages}; {time.monotonic() - started:.0f} s"


def check_requirements(wheel: Path) -> str:
    """What a wheel requires can be had as wheels, on this platform, for every version up to NEXT; numba comes last."""
    versions = [f"{OLDEST[0]}.{minor}" for minor in range(OLDEST[1], NEXT[1] + 1)]
    pip = (sys.executable, "-m", "pip", "install", "--quiet", "--disable-pip-version-check", "--dry-run")
    for version in versions:
        run(*pip, "--target", "unused", "--python-version", version, "--only-binary", ":all:", wheel)
    return f"wheels of all requirements for Python {', '.join(versions)}"


def main() -> None:
    with tempfile.TemporaryDirectory() as folder:
        build = [sys.executable, "-m", "pip", "--quiet", "--disable-pip-version-check"]
        backend = "import hatchling.build as b, sys; print(b.build_sdist(sys.argv[1]))"
        run(*build, "install", "--target", Path(folder, "backend"), "hatchling>=1.26")
        run(sys.executable, "-c", backend, folder, cwd=ROOT, env={**os.environ, "PYTHONPATH": f"{folder}/backend"})
        (sdist,) = Path(folder).glob("*.tar.gz")
        run(*build, "wheel", "--no-deps", "--wheel-dir", folder, sdist)
        (wheel,) = Path(folder).glob("*.whl")
        check_contents(wheel, sdist)
        print(f"{wheel.name}: {wheel.stat().st_size // 1024} KiB; {sdist.name}: {sdist.stat().st_size // 1024} KiB")
        print(check_requirements(wheel))
        found = interpreters()
        chosen = sorted(found if "--all" in sys.argv else {min(found), max(found)})
        with ThreadPoolExecutor(2) as pool:

            def tried(version: tuple[int, int]) -> str:
                place = Path(folder, f"python{version[1]}")
                return try_wheel(found[version], wheel, place, onnx=version == max(chosen))

            for line in pool.map(tried, chosen):
                print(line)


if __name__ == "__main__":
    main()

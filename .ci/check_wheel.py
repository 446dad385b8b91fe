"""Build the wheel and use it: the right files inside, importable away from the source tree."""

import os
import subprocess
import sys
import tempfile
import zipfile
from pathlib import Path

ROOT = Path(__file__).parents[1]
PIP = [sys.executable, "-m", "pip", "--quiet", "--disable-pip-version-check"]
SMOKE = "import everlearn, sys; assert sys.argv[1] in everlearn.__file__; everlearn.IncrementalGaussianMixture()"


def check_contents(wheel: Path) -> None:
    names = zipfile.ZipFile(wheel).namelist()
    strays = [name for name in names if not name.startswith(("everlearn/", "everlearn-"))]
    assert not strays, f"files outside the package: {strays}"
    assert "everlearn/py.typed" in names, "py.typed is missing, so type checkers ignore the package"
    assert any(name.endswith("licenses/LICENSE") for name in names), "the licence is missing"
    listing = subprocess.run(["git", "ls-files", "."], cwd=ROOT / "src", capture_output=True, text=True, check=True)
    missing = set(listing.stdout.split()) - set(names)
    assert not missing, f"files missing from the wheel: {sorted(missing)}"


def check_use(wheel: Path, target: Path) -> None:
    subprocess.run([*PIP, "install", "--no-deps", "--target", target, wheel], check=True)
    environment = {**os.environ, "PYTHONPATH": str(target)}
    subprocess.run([sys.executable, "-c", SMOKE, str(target)], check=True, cwd=target, env=environment)


def main() -> None:
    with tempfile.TemporaryDirectory() as folder:
        subprocess.run([*PIP, "wheel", "--no-deps", "--wheel-dir", folder, ROOT], check=True)
        (wheel,) = Path(folder).glob("*.whl")
        check_contents(wheel)
        check_use(wheel, Path(folder, "installed"))
        print(f"{wheel.name}: {wheel.stat().st_size // 1024} KiB, complete and importable")


if __name__ == "__main__":
    main()

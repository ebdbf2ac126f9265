"""Makes an ext4 image of this checkout and a virtual environment for the guest's interpreter and architecture."""

from __future__ import annotations

import functools
import hashlib
import shutil
import sys
from pathlib import Path

from tools.kernels.places import BUILD, ROOT, KernelsError, run
from tools.kernels.root_image import image_of

PYTHON = "3.11"
"""Of the root file system's Debian, and of the environment that this runs in: bytecode is compiled here."""
TEST_PACKAGES = ("pytest", "pytest-asyncio", "pytest-timeout", "pytest-xdist", "hypothesis", "trustme", "PyYAML")
DISTRIBUTIONS = ("evidence", "protos", "plugin_sdk", "sandbox", "server")
_GLIBC = range(36, 16, -1)
"""Minor versions of glibc 2 whose wheels run with Debian 12's, which is 2.36 (PEP 600)."""
PLATFORMS = {
    debian: (*(f"manylinux_2_{minor}_{name}" for minor in _GLIBC), f"manylinux2014_{name}")
    for debian, name in (("amd64", "x86_64"), ("arm64", "aarch64"))
}
SIZE = "1G"


@functools.cache
def checkout_image(architecture: str) -> Path:
    """What git knows of, as it lies here, with `.venv` beside it. Made anew by each process; the packages are kept."""
    if f"{sys.version_info.major}.{sys.version_info.minor}" != PYTHON:
        raise KernelsError(f"the environment must be of Python {PYTHON}, which is the guests'")
    work = BUILD / f"checkout-{architecture}"
    shutil.rmtree(work, ignore_errors=True)
    listed = run(["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"], what="git ls-files")
    for name in filter(None, listed.split("\0")):
        source, target = ROOT / name, work / name
        if source.is_file():
            target.parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(source, target, follow_symlinks=False)
    environment(work / ".venv", packages(architecture))
    for path in (work, *work.rglob("*")):
        if not path.is_symlink():
            path.chmod(path.stat().st_mode | (0o755 if path.is_dir() else 0o644))
    image = BUILD / f"checkout-{architecture}.ext4"
    image_of(work, image, SIZE)
    shutil.rmtree(work)
    return image


def packages(architecture: str) -> Path:
    """A folder of everything that the tests import and that isn't ours, kept while the constraints stay."""
    constraints = [ROOT / "constraints" / name for name in ("runtime.txt", "dev.txt")]
    lines = [line for line in constraints[0].read_text(encoding="utf-8").splitlines() if line[:1] not in {"", "#"}]
    recipe = "\n".join((*TEST_PACKAGES, *PLATFORMS[architecture], *(path.read_text() for path in constraints)))
    folder = BUILD / f"packages-{architecture}-{hashlib.sha256(recipe.encode()).hexdigest()[:12]}"
    if folder.exists():
        return folder
    print(f"kernels: fetching packages for {architecture}", flush=True)
    for old in BUILD.glob(f"packages-{architecture}-*"):
        shutil.rmtree(old)
    unfinished = folder.with_suffix(".new")
    shutil.rmtree(unfinished, ignore_errors=True)
    run(
        [
            *(sys.executable, "-m", "pip", "install", "--quiet", "--target", unfinished, "--only-binary=:all:"),
            *("--implementation=cp", f"--python-version={PYTHON}", "--abi=cp311", "--abi=abi3", "--abi=none"),
            *(f"--platform={platform}" for platform in PLATFORMS[architecture]),
            *(part for path in constraints for part in ("-c", path)),
            *(*lines, *TEST_PACKAGES),
        ],
        what="pip",
    )
    unfinished.rename(folder)
    return folder


def environment(folder: Path, installed: Path) -> None:
    """As `python3 -m venv` and an editable installation would leave it in the guest."""
    site = folder / "lib" / f"python{PYTHON}" / "site-packages"
    (folder / "bin").mkdir(parents=True)
    for name in ("python", "python3", f"python{PYTHON}"):
        (folder / "bin" / name).symlink_to(f"/usr/bin/python{PYTHON}")
    (folder / "pyvenv.cfg").write_text(f"home = /usr/bin\ninclude-system-site-packages = false\nversion = {PYTHON}\n")
    command = folder / "bin" / "fumehood"
    command.write_text('#!/bin/sh\nexec "$(dirname "$0")/python" -P -m fumehood_server "$@"\n', encoding="utf-8")
    command.chmod(0o755)
    shutil.copytree(installed, site, symlinks=True)
    wheels = folder / "wheels"
    for name in DISTRIBUTIONS:
        run(
            [*_PIP, "wheel", "--quiet", "--no-deps", "--no-build-isolation", "--wheel-dir", wheels, f"./{name}"],
            what=f"the wheel of {name}",
        )
    run([*_PIP, "install", "--quiet", "--no-deps", "--target", site, "--upgrade", *wheels.glob("*.whl")], what="pip")


_PIP = (sys.executable, "-m", "pip")

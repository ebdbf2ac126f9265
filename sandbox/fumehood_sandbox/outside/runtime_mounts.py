"""Runtime mounts: what programs need of the running Python, and of the system's own programs and libraries."""

from __future__ import annotations

import functools
import os
import site
import sys
import sysconfig
from pathlib import Path

from fumehood_sandbox.interpreter import stage_interpreter
from fumehood_sandbox.policy import Mount

_SYNTHETIC = Path(__file__).resolve().parents[1] / "etc"
"""Users and groups that say nothing of this machine."""
_SYSTEM_FOLDERS = ("/usr", "/bin", "/sbin", "/lib", "/lib32", "/lib64", "/libx32")
_SYSTEM_FILES = (
    "/etc/ld.so.cache",
    "/etc/ld.so.conf",
    "/etc/alternatives",
    "/etc/localtime",
    "/etc/ld-musl-x86_64.path",
)
_AUTHORITIES = ("/etc/ssl/certs", "/etc/ssl/cert.pem", "/etc/pki/tls/certs", "/etc/pki/ca-trust/extracted")
"""Where Debian, Alpine and Fedora keep the certificates that TLS is verified by: public; keys lie elsewhere."""
_INSTALLATION = {"bin", "include", "lib", "lib64", "share"}
"""What lies in a folder that holds a Python and nothing else, as pyenv and uv make it."""
_ZONES = "/usr/share/zoneinfo"


@functools.cache
def authorities_runtime() -> tuple[Mount, ...]:
    """The system's certificate authorities, for programs that verify TLS themselves, behind a relay."""
    return tuple(Mount(name, name) for name in _AUTHORITIES if Path(name).exists())


@functools.cache
def system_runtime() -> tuple[Mount, ...]:
    """/usr and its links, and the few files of /etc that programs need. No shadow, no host names, no configuration.

    What the system's package manager installed can be run inside; nothing of /home, /opt, /srv, /var or /root is there.
    """
    names = (*_SYSTEM_FOLDERS, *_SYSTEM_FILES)
    return (
        *(Mount(name, name) for name in names if os.path.lexists(name) and Path(name).exists()),
        *(Mount(str(_SYNTHETIC / name), f"/etc/{name}") for name in ("passwd", "group", "nsswitch.conf")),
    )


@functools.cache
def python_runtime() -> tuple[Mount, ...]:
    """This interpreter, its standard library and the system libraries it is linked with. No site-packages of any kind.

    Launched sandboxes have it in any case, since their inner stage runs in it.
    """
    standard_library = Path(sysconfig.get_path("stdlib")).resolve()
    mounts = [_same(path) for path in _system_libraries()]
    mounts.extend(_same(path) for path in _installation(standard_library))
    if Path(_ZONES).is_dir():
        mounts.append(_same(Path(_ZONES)))
    hidden = sorted({each for each in _site_packages(standard_library) if _covered(each, mounts)})
    return (*dict.fromkeys(mounts), *(Mount("", each) for each in hidden))


def _same(path: Path) -> Mount:
    return Mount(str(path), str(path))


def _mapped_files() -> set[Path]:
    """Files that this process runs from, as the kernel lists them."""
    fields = (line.split(maxsplit=5) for line in Path("/proc/self/maps").read_text(encoding="utf-8").splitlines())
    named = {each[5] for each in fields if len(each) == 6 and each[5].startswith("/")}  # noqa: PLR2004 - as proc(5)
    return set(map(Path, named))


def _system_libraries() -> list[Path]:
    """The folders that hold libc, where extension modules find the rest of the system's libraries, and the loader.

    A program names its loader by a fixed path, such as /lib64/ld-linux-x86-64.so.2, which is often a chain of links.
    """
    names = ("libc.so.", "libc-2.", "ld-linux", "ld-musl", "ld-2.")
    folders = {path.parent for path in _mapped_files() if path.name.startswith(names)}
    loaders = [
        folder.resolve() / path.name if folder.name == "lib" else path
        for folder in (Path("/lib"), Path("/lib64"))
        for path in folder.glob("ld-*.so.*")
    ]
    links = [path for path in (Path("/lib"),) if path.is_symlink()]
    cache = [path for path in (Path("/etc/ld.so.cache"),) if path.exists()]
    return [*sorted(folders), *loaders, *links, *cache]


def _installation(standard_library: Path) -> list[Path]:
    """Where the interpreter is installed: its own folder, else its parts among others'."""
    prefix = Path(sys.base_prefix).resolve()
    if {path.name for path in prefix.iterdir()} <= _INSTALLATION and prefix in standard_library.parents:
        return [prefix]
    parts = [Path(stage_interpreter()), standard_library]
    dynamic = Path(sysconfig.get_path("platstdlib", vars={"platbase": sys.base_exec_prefix})).resolve()
    if dynamic.is_dir():
        parts.append(dynamic)
    if (prefix / "conda-meta").is_dir():
        return [*parts, prefix / "lib"]
    return [*parts, *sorted(path for path in _mapped_files() if path.name.startswith("libpython"))]


def _site_packages(standard_library: Path) -> set[str]:
    named = {str(standard_library / "site-packages"), str(standard_library / "dist-packages"), *site.getsitepackages()}
    return {each for each in named if Path(each).is_dir()}


def _covered(path: str, mounts: list[Mount]) -> bool:
    return any(path == mount.target or path.startswith(mount.target + "/") for mount in mounts)

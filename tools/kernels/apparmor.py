"""Profiles of AppArmor for runs that are confined, compiled here: Debian 12's parser knows no rules for namespaces.

The parser is Debian 13's and runs without being installed. Its output is a file of qemu's firmware configuration,
which the guest's program writes into its kernel.
"""

from __future__ import annotations

import hashlib
import shutil
import subprocess
from pathlib import Path

from tools.kernels.places import BUILD, KernelsError, run
from tools.kernels.root_image import mirror

SUITE = "trixie"
KEY = "opt/fumehood/apparmor"
"""Where the guest finds the profiles in its firmware's configuration."""
NO_USERNS, USERNS = "no-userns", "userns"
"""Confined in nothing, but for namespaces that an ordinary program makes; and not in that either."""
_EVERYTHING = """\
  file,
  capability,
  network,
  mount,
  remount,
  umount,
  pivot_root,
  signal,
  ptrace,
  unix,
  mqueue,
"""
PROFILES = f"""\
abi <abi/4.0>,
profile {NO_USERNS} flags=(attach_disconnected) {{
{_EVERYTHING}}}
profile {USERNS} flags=(attach_disconnected) {{
{_EVERYTHING}  userns,
}}
"""
_FIRMWARE = Path("/sys/firmware/qemu_fw_cfg/by_name", KEY, "raw")
_INTO_THE_KERNEL = Path("/sys/kernel/security/apparmor/.replace")


def compiled() -> Path:
    """The profiles as the kernel takes them. Kept while they stay as they are.

    Raises:
        KernelsError: the parser can't be had or refuses them.
    """
    made = BUILD / f"apparmor-{hashlib.sha256((SUITE + PROFILES).encode()).hexdigest()[:12]}.policy"
    if made.exists():
        return made
    work = BUILD / "apparmor"
    shutil.rmtree(work, ignore_errors=True)
    options = ("--mode=root", "--variant=extract", "--aptopt=APT::Install-Recommends false", "--include=apparmor")
    run(["mmdebstrap", *options, SUITE, work, f"deb {mirror()} {SUITE} main"], what="mmdebstrap")
    source, unfinished = work / "profiles", made.with_suffix(".new")
    source.write_text(PROFILES, encoding="utf-8")
    (loader,) = work.glob("usr/lib64/ld-linux-x86-64.so.2")
    features = work / "etc/apparmor.d/abi/4.0"
    run(
        [
            *(loader, "--library-path", work / "usr/lib/x86_64-linux-gnu", work / "usr/sbin/apparmor_parser"),
            *("--config-file", "/dev/null", "--base", work / "etc/apparmor.d"),
            *("--kernel-features", features, "--policy-features", features),
            *("--skip-kernel-load", "--skip-cache", "--ofile", unfinished, source),
        ],
        what="apparmor_parser",
    )
    unfinished.rename(made)
    shutil.rmtree(work)
    return made


def load() -> None:
    """In the guest: have the kernel take the profiles that it was booted with.

    Raises:
        KernelsError: the kernel has no AppArmor.
    """
    subprocess.run(["/sbin/modprobe", "qemu_fw_cfg"], check=True)
    if not _INTO_THE_KERNEL.exists():
        raise KernelsError("this kernel has no AppArmor")
    _INTO_THE_KERNEL.write_bytes(_FIRMWARE.read_bytes())

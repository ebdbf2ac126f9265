"""Makes a Debian root file system with systemd and the kernels, an ext4 image that is kept until its recipe changes."""

from __future__ import annotations

import hashlib
import os
import re
import shutil
from dataclasses import dataclass
from pathlib import Path

from tools.kernels.places import BUILD, KernelsError, run

SUITE = "bookworm"
BACKPORTS = f"{SUITE}-backports"
KERNEL_PACKAGES = {"amd64": "linux-image-cloud-amd64", "arm64": "linux-image-cloud-arm64"}
PACKAGES = (
    *("systemd-sysv", "kmod", "procps", "ca-certificates"),
    *("python3", "python3-venv", "bubblewrap"),
)
UNIT = """\
[Unit]
Description=What this guest is booted for
DefaultDependencies=no
SuccessAction=poweroff-immediate
FailureAction=poweroff-immediate

[Service]
Type=oneshot
TimeoutStartSec=infinity
StandardOutput=file:/dev/console
StandardError=file:/dev/console
ExecStartPre=-/sbin/modprobe --all virtio_pci virtio_console
ExecStartPre=/bin/mount -o ro,noatime /dev/nvme0n2 /src
ExecStart=/bin/sh -c 'cd /src && exec .venv/bin/python -B -m tools.kernels.guest'
"""
# The guest starts this unit and no other: no udev, no journal, no D-Bus. With a disk whose driver is in the kernel it
# needs no initial RAM disk either. That is most of a boot without KVM.
CONFIGURED = f"""
chroot . apt-get install --yes --target-release {BACKPORTS} KERNEL
chroot . useradd --create-home --uid 1000 tester
"""
EXTRACTED = """
cp usr/share/base-passwd/passwd.master etc/passwd
cp usr/share/base-passwd/group.master etc/group
cp usr/share/libc-bin/nsswitch.conf etc
echo tester:x:1000:1000::/home/tester:/bin/sh >>etc/passwd
echo tester:x:1000: >>etc/group
install -d -o 1000 -g 1000 home/tester
mkdir -p media mnt opt srv
: >etc/machine-id
"""
"""Packages of another architecture are only unpacked, since this machine runs none of their scripts: that would take
a handler of binfmt_misc, which all of the machine would see. So the kernel's drivers must be built into it. Without a
file for the machine's identity systemd would ask for one."""
EXTRACTED_PACKAGES = (
    *("base-files", "base-passwd", "bash", "coreutils", "dash", "grep", "libc-bin", "libstdc++6", "mount"),
    *("passwd", "sed", "util-linux", *PACKAGES),
)
MERGED_USR = 'cd "$1" && mkdir -p usr/bin usr/sbin usr/lib && ln -s usr/bin usr/sbin usr/lib .'
SET_UP = f"""
set -eu
cd "$1"
USERS
cat >etc/systemd/system/fumehood-kernels.service <<'END'
{UNIT}END
mkdir -p src
echo kernels >etc/hostname
printf '127.0.0.1 localhost kernels\n' >etc/hosts
rm -rf var/cache/apt/archives/*.deb
"""
SIZE = "4G"
"""Sparse: what is used of it is less than 1 GiB."""


@dataclass(frozen=True, slots=True)
class RootImage:
    """The image, and the kernels that it was made with, by their series."""

    image: Path
    boot: Path

    def kernel(self, series: str) -> Path:
        """The kernel of a series such as "6.1"."""
        found = sorted(self.boot.glob(f"vmlinuz-{series}.*"))
        if not found:
            raise KernelsError(
                f"no kernel {series} in {self.boot}: the packages have moved on; see tools/kernels/matrix.py"
            )
        return found[-1]


def mirror() -> str:
    """The archive that this machine's apt takes the suite from, or KERNELS_MIRROR."""
    if given := os.environ.get("KERNELS_MIRROR"):
        return given
    told = run(
        ["apt-get", "indextargets", "--format", "$(REPO_URI) $(RELEASE) $(COMPONENT)", "Created-By: Packages"],
        what="asking apt for its archives",
    )
    for line in told.splitlines():
        uri, release, component = line.split()[:3]
        if (release, component) == (SUITE, "main"):
            return uri
    raise KernelsError(f"apt has no archive of {SUITE} here: name one in KERNELS_MIRROR")


def root_image(architecture: str) -> RootImage:
    """Make the image, or take the one that was made by the same recipe."""
    kernel = KERNEL_PACKAGES[architecture]
    if architecture == run(["dpkg", "--print-architecture"], what="asking dpkg for its architecture").strip():
        set_up = SET_UP.replace("USERS", CONFIGURED.replace("KERNEL", kernel))
        stage, options = "customize", ["--variant=minbase", f"--include={','.join((*PACKAGES, kernel))}"]
    else:
        set_up = SET_UP.replace("USERS", EXTRACTED)
        packages = ",".join((*EXTRACTED_PACKAGES, f"{kernel}/{BACKPORTS}"))
        stage = "extract"  # the last that there is without scripts of packages
        options = ["--variant=extract", f"--setup-hook={MERGED_USR}", f"--include={packages}"]
    recipe = "\n".join((SUITE, *options, set_up, SIZE))
    folder = BUILD / f"root-{architecture}-{hashlib.sha256(recipe.encode()).hexdigest()[:12]}"
    made = RootImage(folder / "root.ext4", folder / "boot")
    if made.image.exists():
        return made
    if os.geteuid() != 0:
        raise KernelsError("a root file system is made by root: run this as root once")
    print(f"kernels: making the root file system for {architecture}: some minutes", flush=True)
    for old in BUILD.glob(f"root-{architecture}-*"):
        shutil.rmtree(old)
    work = folder / "files"
    folder.mkdir(parents=True)
    hook = folder / "set-up.sh"
    hook.write_text(set_up, encoding="utf-8")
    hook.chmod(0o755)
    lines = [f"deb {mirror()} {suite} main" for suite in (SUITE, BACKPORTS)]
    try:
        run(
            [
                *("mmdebstrap", "--mode=root", f"--architectures={architecture}", *options),
                *("--aptopt=APT::Install-Recommends false", "--aptopt=Acquire::Retries 3"),
                *(f'--{stage}-hook={hook} "$1"', SUITE, str(work), *lines),
            ],
            what="mmdebstrap",
        )  # fmt: skip
        shutil.copytree(work / "boot", made.boot)
        image_of(work, made.image, SIZE)
    except BaseException:
        shutil.rmtree(folder)
        raise
    shutil.rmtree(work)
    return made


def image_of(folder: Path, image: Path, size: str) -> None:
    """An ext4 image with what lies in a folder. It appears when it is complete."""
    unfinished = image.with_suffix(".new")
    unfinished.unlink(missing_ok=True)
    run(["mke2fs", "-q", "-t", "ext4", "-d", folder, unfinished, size], what="mke2fs")
    unfinished.rename(image)


def series_of(release: str) -> str:
    """Such as "6.1" of "6.1.0-40-cloud-amd64"."""
    found = re.match(r"\d+\.\d+", release)
    return found[0] if found else release

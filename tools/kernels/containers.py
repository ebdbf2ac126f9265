"""`make test-containers`: runs each line of docs/deploy/docker.md under podman, asks doctor there, and calls a tool.

The image is the Dockerfile's, made by mmdebstrap and imported: nothing is pulled. What differs from the page's lines is
podman's own spelling, no network (nothing here needs one) and limits that this machine's own allow. Root tries the
lines as root, and rootless as well if CONTAINERS_USER names a user who has subordinate ids (subuid(5)); whoever else
runs this tries them rootless.

Exit status: 0 as the page says, 1 otherwise, 2 it could not be tried.
"""

from __future__ import annotations

import hashlib
import json
import os
import pwd
import re
import resource
import shlex
import shutil
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from tools.kernels.checkout_image import DISTRIBUTIONS, environment, packages
from tools.kernels.places import BUILD, ROOT, KernelsError, run
from tools.kernels.results import backend_of
from tools.kernels.root_image import SUITE, mirror

PAGE = ROOT / "docs" / "deploy" / "docker.md"
IMAGE = "registry.example/fumehood"
CONTAINER = "fumehood-tried"
"""Not the page's name, also in volumes: what is made here is removed again, and must be nobody's."""
FOLDER = BUILD / "container-etc"
USER = 10001
SOURCES = (*DISTRIBUTIONS, "constraints", "examples/plugins/dice")
PACKAGES = ("bubblewrap", "ca-certificates", "python3", "python3-venv")
SETTINGS = (
    'ENTRYPOINT ["fumehood"]',
    "ENV PATH=/opt/fumehood/bin:/usr/local/bin:/usr/bin:/bin",
    "ENV FUMEHOOD_ADDRESS=unix:/run/fumehood/fumehood.sock",
    "WORKDIR=/var/lib/fumehood",
    f"USER={USER}:{USER}",
)
"""As docs/deploy/Dockerfile has them."""
CONFIG = """\
[server]
listen = ["unix:/run/fumehood/fumehood.sock"]
state_dir = "/var/lib/fumehood"

[sandbox]
minimum = "{minimum}"

[[plugin]]
path = "/opt/plugins/dice"
"""
TIMEOUT_S = 300
_TOLD = re.compile(r"^\| \[([^\]]+)\]\(#[^)]+\) \|.*\| (\w+); weaker: ([\w, ]+) \|$", re.MULTILINE)
"""Of the page's table: a line's name, and its last column."""
_START_TRIES = "60"


@dataclass(frozen=True, slots=True)
class Line:
    """A run line of the page."""

    name: str
    options: tuple[str, ...]
    """Of `podman run`."""
    backend: str
    """What the last column of the page's table says that doctor finds there."""
    weaker: tuple[str, ...]
    """And which layers are weaker, in alphabetical order."""

    def against(self, findings: list[dict[str, str]]) -> Iterator[str]:
        """Where what doctor found differs from that."""
        backend, weaker = backend_of(findings)
        if backend != self.backend:
            missing = "; ".join(
                each["detail"] for each in findings if each["area"] == "sandbox" and each["status"] != "in force"
            )
            yield f"doctor finds {backend}, not {self.backend}: {missing}"
        elif weaker != list(self.weaker):
            yield f"doctor finds {weaker} weaker, not {list(self.weaker)}"


def lines() -> Iterator[Line]:
    """Every run line, in podman's spelling.

    Raises:
        KernelsError: the page's table doesn't say what doctor finds there.
    """
    page = PAGE.read_text(encoding="utf-8")
    told = {name: (backend, weaker.split(", ")) for name, backend, weaker in _TOLD.findall(page)}
    for name, block in re.findall(
        r"^## ([^\n]+)\n(?:(?!^## ).)*?```sh\n(docker run.*?)```", page, re.DOTALL | re.MULTILINE
    ):
        words = shlex.split(block.replace("\\\n", " "))[2:]
        words = words[: words.index(IMAGE)]
        profile = f"seccomp={PAGE.with_name('seccomp.json')}"
        spelt = {"systempaths=unconfined": "unmask=ALL", "seccomp=seccomp.json": profile, "fumehood": CONTAINER}
        options = [spelt.get(word, word).replace("$PWD/etc", str(FOLDER)) for word in words]
        options = [re.sub("^fumehood-(run|state):", rf"{CONTAINER}-\1:", option) for option in options]
        if name not in told:
            raise KernelsError(f"the table of {PAGE} doesn't say what doctor finds by the line {name!r}")
        backend, weaker = told[name]
        yield Line(name, tuple(options), backend, tuple(weaker))


def image_archive() -> Path:
    """The image's files, as a tar. Kept while recipe and sources stay."""
    archive = BUILD / f"container-{recipe_digest(ROOT)[:12]}.tar"
    if archive.exists():
        return archive
    print("containers: making the image: some minutes", flush=True)
    for old in BUILD.glob("container-*.tar"):
        old.unlink()
    work = BUILD / "container"
    shutil.rmtree(work, ignore_errors=True)
    environment(work / "fumehood", packages("amd64"))
    shutil.copytree(ROOT / "examples" / "plugins" / "dice", work / "plugins" / "dice")
    run(["chmod", "-R", "a+rX", work], what="chmod")
    made = f'install --directory --owner {USER} --group {USER} --mode 0750 "$1/run/fumehood" "$1/var/lib/fumehood"'
    unfinished = archive.with_suffix(".new.tar")
    run(
        [
            *("mmdebstrap", "--variant=minbase", "--aptopt=APT::Install-Recommends false"),
            *(
                f"--include={','.join(PACKAGES)}",
                f'--customize-hook=cp -r {work}/. "$1/opt/"',
                f"--customize-hook={made}",
            ),
            *(SUITE, str(unfinished), f"deb {mirror()} {SUITE} main"),
        ],
        what="mmdebstrap",
    )
    unfinished.rename(archive)
    shutil.rmtree(work)
    return archive


def recipe_digest(checkout: Path) -> str:
    """Of all that an image of a checkout is made from: what git knows of or may come to know of, as it lies there."""
    options = ["-z", "--cached", "--others", "--exclude-standard"]
    listed = run(["git", "-C", str(checkout), "ls-files", *options, "--", *SOURCES], what="git ls-files")
    digest = hashlib.sha256(repr((SUITE, PACKAGES)).encode())
    for name in sorted(filter(None, listed.split("\0"))):
        path = checkout / name
        content = path.read_bytes() if path.is_file() else b""
        digest.update(f"{name}\0{hashlib.sha256(content).hexdigest()}\n".encode())
    return digest.hexdigest()


def main() -> int:
    """Try every line."""
    try:
        problems = list(_problems())
    except KernelsError as error:
        print(f"containers: {error}", file=sys.stderr)
        return 2
    for problem in problems:
        print(f"  NOT AS EXPECTED: {problem}", file=sys.stderr)
    return 1 if problems else 0


def _problems() -> Iterator[str]:
    if not shutil.which("podman"):
        raise KernelsError("there is no podman here: apt-get install podman runc crun uidmap slirp4netns iptables")
    settings = [part for each in SETTINGS for part in ("--change", each)]
    archive = image_archive()
    for who, podman in _podmans():
        print(f"containers: {who}", flush=True)
        run([*podman, "import", *settings, archive, IMAGE], what="podman import", cwd=Path("/"))
        yield from (f"{who}: {problem}" for problem in _tried(podman))


def _podmans() -> Iterator[tuple[str, list[str]]]:
    """Who runs containers here, and how."""
    if os.geteuid() != 0:
        yield "rootless", ["podman", "--cgroup-manager=cgroupfs"]
        return
    yield "root", ["podman"]
    if name := os.environ.get("CONTAINERS_USER"):
        user = pwd.getpwnam(name)
        runtime = Path(f"/run/{CONTAINER}-{user.pw_uid}")
        runtime.mkdir(mode=0o700, exist_ok=True)
        os.chown(runtime, user.pw_uid, user.pw_gid)
        places = ("PATH=/usr/sbin:/usr/bin:/sbin:/bin", f"HOME={user.pw_dir}", f"XDG_RUNTIME_DIR={runtime}")
        identity = (f"--reuid={user.pw_uid}", f"--regid={user.pw_gid}", "--clear-groups")
        command = ["setpriv", *identity, "env", "--ignore-environment", *places, "podman", "--cgroup-manager=cgroupfs"]
        yield "rootless", command


def _tried(podman: list[str]) -> Iterator[str]:
    for line in lines():
        print(f"containers: {line.name}: podman run {shlex.join(line.options)}", flush=True)
        shutil.rmtree(FOLDER, ignore_errors=True)
        FOLDER.mkdir(parents=True)
        (FOLDER / "fumehood.toml").write_text(CONFIG.format(minimum=line.backend), encoding="utf-8")
        yield from (f"{line.name}: {problem}" for problem in _line(podman, line))
        for volume in ("run", "state"):
            _output([*podman, "volume", "rm", "--force", f"{CONTAINER}-{volume}"])


def _line(podman: list[str], line: Line) -> Iterator[str]:
    # Pinned as the page says: beforehand, where the folder can be written to.
    pinning = [word.removesuffix(":ro") for word in _podman_run(podman, line)]
    FOLDER.chmod(0o777)  # also for a container's own user
    pinned = _output([*pinning, "--workdir=/etc/fumehood", IMAGE, "plugin", "add", "--yes", "/opt/plugins/dice"])
    FOLDER.chmod(0o755)
    if not (FOLDER / "fumehood.lock").exists():
        yield f"nothing was pinned: {pinned}"
        return
    config = "/etc/fumehood/fumehood.toml"
    told = _output([*_podman_run(podman, line), IMAGE, "doctor", "--json", "--config", config])
    try:
        findings = json.loads(told)["findings"]
    except ValueError:
        yield f"doctor: {told}"
        return
    backend, weaker = backend_of(findings)
    print(f"  doctor finds {backend}, weaker: {', '.join(weaker) or 'nothing'}", flush=True)
    yield from line.against(findings)
    yield from _served(podman, line, config)


def _served(podman: list[str], line: Line, config: str) -> Iterator[str]:
    """Serve as the page's line does, call a tool, and end it."""
    # In the background, and removed when its exit status has been read.
    start = [*(word for word in _podman_run(podman, line) if word != "--rm"), "--detach", IMAGE]
    try:
        run([*start, "serve", "--config", config, "--locked", "--log-format", "json"], what="podman run", cwd=Path("/"))
        # The same user as the sidecar's: its socket is its owner's alone.
        call = f"for i in $(seq {_START_TRIES}); do fumehood tools >/dev/null 2>&1 && break; sleep 1; done; "
        call += "fumehood call --json roll_dice count=2 sides=6"
        answer = _output([*podman, "exec", CONTAINER, "/bin/sh", "-c", call])
        if '"sandbox"' in answer:
            print("  a tool was called", flush=True)
        else:
            yield f"the call: {answer}"
        _output([*podman, "stop", "--time", "30", CONTAINER])
        status = _output([*podman, "inspect", "--format", "{{.State.ExitCode}}", CONTAINER]).strip()
        if status != "0":
            yield f"serve ended with {status}: {_output([*podman, 'logs', CONTAINER])[-1000:]}"
    finally:
        _output([*podman, "rm", "--force", CONTAINER])


def _podman_run(podman: list[str], line: Line) -> list[str]:
    options = list(line.options)
    if Path("/sys/fs/cgroup/unified").exists():
        options.append("--runtime=runc")  # crun refuses machines that mount both versions of control groups
    for name, number in (("nofile", resource.RLIMIT_NOFILE), ("nproc", resource.RLIMIT_NPROC)):
        most = min(resource.getrlimit(number)[1] % (1 << 63), 20_000)
        options.append(f"--ulimit={name}={most}:{most}")
    return [*podman, "run", *options, "--network=none"]


def _output(command: list[str]) -> str:
    """What it prints, or why it failed."""
    done = subprocess.run(
        command, capture_output=True, text=True, check=False, timeout=TIMEOUT_S, stdin=subprocess.DEVNULL, cwd="/"
    )
    return done.stdout if done.returncode == 0 else f"{done.returncode}: {done.stdout[-1500:]}{done.stderr[-800:]}"


if __name__ == "__main__":
    sys.exit(main())

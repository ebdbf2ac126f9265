"""What each layer denies, beside what it must leave possible."""

from __future__ import annotations

import json
import os
import re
from pathlib import Path

import pytest
from fumehood_sandbox import Level, Limits, Policy
from fumehood_sandbox.cgroup import Control
from fumehood_sandbox.cgroup import cgroups as usable_cgroups

from .harness import BOUND_S, inside, read_line, read_to_end, running

CGROUP = usable_cgroups()
"""What this user may use: nothing, for the ordinary one."""


@pytest.mark.promise("S101")
def test_only_what_the_policy_names_exists(tmp_path: Path) -> None:
    granted, hidden = tmp_path / "granted", tmp_path / "hidden"
    for folder in (granted, hidden):
        folder.mkdir()
        (folder / "file").write_text("text")
    found = inside(
        tmp_path,
        f"""
        report({{
            "granted": open("{granted}/file").read(),
            "hidden": error_of(lambda: open("{hidden}/file")),
            "home": error_of(lambda: os.listdir("/home")),
            "root": sorted(os.listdir("/")),
        }})
        """,
        Policy(level=Level.READ, read=(str(granted),)),
    )
    assert found["granted"] == "text"
    assert found["hidden"] == found["home"] == "ENOENT"
    usual = {"dev", "etc", "lib", "lib64", "proc", "root", "run", "tmp", "usr", "opt", "home"}
    assert set(found["root"]) <= {*usual, tmp_path.parts[1]}, "beside where the grant lies"


@pytest.mark.promise("S102")
def test_read_grants_cannot_be_changed_and_write_grants_can(tmp_path: Path) -> None:
    read, write = tmp_path / "read", tmp_path / "write"
    for folder in (read, write):
        folder.mkdir()
        (folder / "file").write_text("before")
    found = inside(
        tmp_path,
        f"""
        def attempts(folder):
            return {{
                "change": error_of(lambda: open(folder + "/file", "r+")),
                "truncate": error_of(lambda: os.truncate(folder + "/file", 0)),
                "create": error_of(lambda: open(folder + "/new", "w").write("x")),
                "folder": error_of(lambda: os.mkdir(folder + "/sub")),
                "link": error_of(lambda: os.symlink("/etc", folder + "/link")),
                "rename": error_of(lambda: os.rename(folder + "/file", folder + "/other")),
                "remove": error_of(lambda: os.unlink(folder + "/other")),
                "execute": error_of(lambda: os.execv(folder + "/program", ["x"])),
            }}
        report([attempts("{read}"), attempts("{write}")])
        """,
        Policy(level=Level.WRITE, read=(str(read),), write=(str(write),)),
    )
    denied, allowed = found
    assert set(denied.values()) <= {"EROFS", "EACCES", "ENOENT"}
    assert "done" not in denied.values()
    assert {name for name, answer in allowed.items() if answer != "done"} == {"execute"}
    assert (read / "file").read_text() == "before"
    assert (write / "new").read_text() == "x"


@pytest.mark.promise("S103")
def test_programs_cannot_be_run_from_where_data_is(tmp_path: Path) -> None:
    data = tmp_path / "data"
    data.mkdir()
    (data / "program").write_bytes(Path("/bin/true").read_bytes())
    (data / "program").chmod(0o755)
    found = inside(
        tmp_path,
        f"""
        import shutil
        shutil.copy("{data}/program", "/tmp/program")
        os.chmod("/tmp/program", 0o755)
        def run(path):
            return error_of(lambda: subprocess.run([path, "-I", "-S", "-c", ""], check=True))
        report([run("{data}/program"), run("/tmp/program"), run(sys.executable)])
        """,
        Policy(level=Level.READ, read=(str(data),)),
    )
    assert found == ["EACCES", "EACCES", "done"]


@pytest.mark.promise("S103")
@pytest.mark.parametrize("runs_written", [False, True])
def test_programs_are_run_from_a_written_folder_where_the_policy_is_a_builds(
    tmp_path: Path, *, runs_written: bool
) -> None:
    made = tmp_path / "made"
    made.mkdir()
    found = inside(
        tmp_path,
        f"""
        def run(path):
            with open(path, "w") as script:
                script.write("#!" + os.path.realpath(sys.executable) + "\\n")
            os.chmod(path, 0o755)
            return error_of(lambda: subprocess.run([path], check=True))
        report([run("{made}/program"), run("/tmp/program")])
        """,
        Policy(level=Level.WRITE, write=(str(made),), runs_written=runs_written),
    )
    assert found == ["done" if runs_written else "EACCES", "EACCES"]


@pytest.mark.promise("S203")
def test_landlock_denies_what_the_mounts_allow(tmp_path: Path) -> None:
    found = inside(
        tmp_path,
        """
        report({
            "write comm": error_of(lambda: os.open("/proc/self/comm", os.O_WRONLY)),
            "read comm": error_of(lambda: os.open("/proc/self/comm", os.O_RDONLY)),
            "write oom": error_of(lambda: os.open("/proc/self/oom_score_adj", os.O_WRONLY)),
            "core pattern": error_of(lambda: os.open("/proc/sys/kernel/core_pattern", os.O_WRONLY)),
            "sysrq": error_of(lambda: os.open("/proc/sysrq-trigger", os.O_WRONLY)),
            "kcore": error_of(lambda: os.open("/proc/kcore", os.O_RDONLY)),
            "null": error_of(lambda: open("/dev/null", "w").write("x")),
        })
        """,
    )
    assert {name for name, answer in found.items() if answer == "done"} == {"read comm", "null"}
    assert set(found.values()) <= {"EACCES", "EPERM", "ENOENT", "done"}


@pytest.mark.promise("S201")
def test_processes_outside_are_not_seen(tmp_path: Path) -> None:
    found = inside(
        tmp_path,
        f"""
        report({{
            "pids": sorted(int(name) for name in os.listdir("/proc") if name.isdigit()),
            "kill": error_of(lambda: os.kill({os.getpid()}, 0)),
            "self": os.getpid(),
            "host": socket.gethostname(),
        }})
        """,
    )
    assert found["pids"] == [1, found["self"]]
    assert found["kill"] == "ESRCH"
    assert found["host"] == "sandbox"


@pytest.mark.promise("S507")
@pytest.mark.skipif(os.geteuid() != 0, reason="an ordinary user has one identity to give")
def test_identities_differ_by_name_and_stay_the_same(tmp_path: Path) -> None:
    users = [inside(tmp_path, "report(os.getuid())", Policy(level=Level.NONE, identity=name)) for name in "aba"]
    assert users[0] == users[2] != users[1]


@pytest.mark.promise("S503", "S504")
def test_nothing_is_inherited(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FUMEHOOD_CANARY", "sings")
    canary = os.open("/etc/passwd", os.O_RDONLY)
    os.set_inheritable(canary, True)
    try:
        found = inside(
            tmp_path,
            """
            descriptors = [int(name) for name in os.listdir("/proc/self/fd")]
            def is_open(fd):
                try:
                    os.fstat(fd)
                except OSError:
                    return False
                return True
            report({"environment": dict(os.environ), "descriptors": [fd for fd in descriptors if is_open(fd)]})
            """,
            Policy(level=Level.NONE, environment=(("GIVEN", "yes"), ("PATH", "/x"))),
        )
    finally:
        os.close(canary)
    assert found == {"environment": {"GIVEN": "yes", "PATH": "/x"}, "descriptors": [0, 1, 2]}


@pytest.mark.promise("S601")
@pytest.mark.parametrize("cgroups", [True, False])
def test_limits_hold(tmp_path: Path, *, cgroups: bool) -> None:
    found = inside(
        tmp_path,
        """
        import mmap, resource
        def open_many():
            kept = [open("/dev/null") for _ in range(40)]
        def write(path, count):
            with open(path, "wb", buffering=0) as stream:
                for _ in range(count):
                    stream.write(bytes(65536))
        signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
        report({
            "descriptors": error_of(open_many),
            "address space": error_of(lambda: mmap.mmap(-1, 1 << 30)),
            "less of it": error_of(lambda: mmap.mmap(-1, 1 << 20)),
            "file": error_of(lambda: write("/tmp/big", 32)),
            "small file": error_of(lambda: write("/tmp/small", 8)),
            "scratch": error_of(lambda: [write(f"/dev/shm/{n}", 15) for n in range(5)]),
            "core": resource.getrlimit(resource.RLIMIT_CORE),
        })
        """,
        Policy(
            level=Level.NONE,
            cgroups=cgroups,
            limits=Limits(
                memory_bytes=512 << 20, open_files=32, file_size_bytes=1 << 20, scratch_bytes=4 << 20, processes=8
            ),
        ),
    )
    assert found == {
        "descriptors": "EMFILE",
        # A cgroup bounds what is held, so that nobody has to bound what is only reserved.
        "address space": "done" if cgroups and not CGROUP.missing else "ENOMEM",
        "less of it": "done",
        "file": "EFBIG",
        "small file": "done",
        "scratch": "ENOSPC",
        "core": [1, 1],
    }


@pytest.mark.promise("S601")
def test_files_of_scratch_are_limited_in_number(tmp_path: Path) -> None:
    code = """
    def fill(folder):
        made = 0
        try:
            while made < 200:
                os.close(os.open(f"{folder}/{made}", os.O_CREAT | os.O_WRONLY))
                made += 1
        except OSError as error:
            return [made, errno.errorcode[error.errno]]
        return [made, "done"]
    report([fill("/tmp"), fill("/dev/shm")])
    """
    few, many = (
        inside(tmp_path, code, Policy(level=Level.NONE, limits=Limits(scratch_files=count))) for count in (100, 4096)
    )
    assert all(90 <= made < 100 and why == "ENOSPC" for made, why in few), few
    assert many == [[200, "done"]] * 2


_BY_STATUS = {
    "off for good": ("thread force mitigated", "always disabled", "conditional force disabled"),
    "off by the kernel": ("thread mitigated", "globally mitigated", "always disabled", "conditional disabled"),
    "harmless on this processor": ("not vulnerable", "not affected"),
    "not known to this kernel": ("unknown", ""),
}


@pytest.mark.promise("S314")
def test_speculation_is_off_where_the_kernel_has_a_control_and_named_where_it_has_none(tmp_path: Path) -> None:
    code = """
    lines = open("/proc/self/status").read().splitlines()
    states = {line.split(":")[0]: line.split(":")[1].strip() for line in lines if ":" in line}
    prctl = ctypes.CDLL(None).prctl
    report([states.get("Speculation_Store_Bypass", ""), states.get("SpeculationIndirectBranch", ""),
            prctl(53, 0, 2, 0, 0), prctl(53, 1, 2, 0, 0)])
    """
    with running(tmp_path, code) as process:
        *states, store_bypass_on, _ = json.loads(read_line(process.stdout))
        (detail,) = (layer.detail for layer in process.receipt.layers if layer.name == "speculation")
    told = re.fullmatch("store bypass (.+), indirect branch (.+)", detail)
    assert told is not None
    for said, state in zip(told.groups(), states, strict=True):
        if said.startswith("on, "):
            assert state not in {"thread force mitigated", "conditional force disabled"}
        else:
            assert state in _BY_STATUS[said]
    if told[1] == "off for good":
        assert store_bypass_on != 0, "the program can't turn it on again"


@pytest.mark.promise("S610")
def test_kernel_without_memory_ends_a_program_before_its_launcher(tmp_path: Path) -> None:
    code = """
    path = "/proc/self/oom_score_adj"
    pid = os.fork()
    if pid == 0:
        report([int(open(path).read()), error_of(lambda: open(path, "w").write("-1")), open("/tmp/x", "w").write("-1")])
    else:
        os.waitpid(pid, 0)
    """
    score, lowered, control = inside(tmp_path, code)
    assert score == min(int(Path("/proc/self/oom_score_adj").read_text()) + 500, 1000)
    assert lowered == "EACCES"
    assert control == 2


@pytest.mark.promise("S602")
def test_fork_bomb_is_held_by_the_limit_of_processes(tmp_path: Path) -> None:
    code = """
    children = []
    try:
        while True:
            pid = os.fork()
            if pid == 0:
                signal.pause()
            children.append(pid)
    except BlockingIOError:
        report(len(children))
    signal.pause()
    """
    with running(tmp_path, code, Policy(level=Level.NONE, identity="bomb", limits=Limits(processes=12))) as process:
        children = json.loads(read_line(process.stdout))
    assert 1 <= children <= 12


@pytest.mark.promise("S603")
def test_processor_time_is_limited(tmp_path: Path) -> None:
    code = "\nwhile True: pass"
    with running(tmp_path, code, Policy(level=Level.NONE, limits=Limits(cpu_s=1))) as process:
        process.wait(BOUND_S)
        assert process.exit_description in {"killed by SIGXCPU", "killed by SIGKILL"}


@pytest.mark.promise("S901")
@pytest.mark.parametrize("wanted", [True, False])
def test_receipt_names_every_layer_in_force(tmp_path: Path, *, wanted: bool) -> None:
    with running(tmp_path, "report(1)", Policy(level=Level.NONE, cgroups=wanted)) as process:
        receipt = process.receipt
        read_to_end(process)
    has_leaf = wanted and bool(CGROUP.parents)
    assert [layer.name for layer in receipt.layers] == [
        "namespaces", "environment", *(["cgroup"] if has_leaf else []), "speculation", "rlimits",
        "identity", "capabilities", "landlock", "descriptors", "seccomp", "scratch",
        *([] if wanted and Control.QUOTA in CGROUP.controls else ["cpus"]),
    ]  # fmt: skip
    weaker = () if wanted and not CGROUP.missing else ("rlimits",)
    assert receipt.weaker == (*weaker, *(() if wanted and Control.QUOTA in CGROUP.controls else ("cpus",)))
    assert receipt.level is Level.NONE
    assert receipt.policy_digest.startswith("sha256:")
    assert all(layer.detail for layer in receipt.layers)

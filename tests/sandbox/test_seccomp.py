"""The filter in the kernel: real system calls in a real sandbox."""

from __future__ import annotations

import json
import platform
import signal
from pathlib import Path

import pytest
from fumehood_sandbox import Level
from fumehood_sandbox.seccomp import ARCHITECTURES, deny_list

from .harness import BOUND_S, inside, read_to_end, running

HERE = ARCHITECTURES[platform.machine()]


def test_every_denied_call_fails_in_the_kernel(tmp_path: Path) -> None:
    rules = {rule.syscall: rule for rule in deny_list(Level.NONE) if not rule.conditions}
    numbers = {name: number for name in rules if (number := HERE.number(name)) is not None}
    found = inside(tmp_path, f"report({{n: syscall(k, 0, 0, 0, 0, 0, 0) for n, k in {numbers!r}.items()}})")
    expected = {name: "ENOSYS" if name in {"clone3", "openat2"} else "EPERM" for name in numbers}
    assert found == expected


def test_sockets_are_denied_and_connected_pairs_work(tmp_path: Path) -> None:
    found = inside(
        tmp_path,
        """
        kinds = {"inet": (2, 1), "inet6": (10, 2), "unix": (1, 1)}
        kinds |= {"netlink": (16, 3), "packet": (17, 3), "vsock": (40, 1)}
        found = {name: error_of(lambda: socket.socket(*kind)) for name, kind in kinds.items()}
        for name, kind in {"stream": 1, "seqpacket": 5, "datagram": 2}.items():
            found[name] = error_of(lambda: socket.socketpair(socket.AF_UNIX, kind))
        import asyncio
        async def nap():
            return await asyncio.to_thread(lambda: "awake")
        found["asyncio"] = asyncio.run(nap())
        report(found)
        """,
    )
    denied = dict.fromkeys(("inet", "inet6", "unix", "netlink", "packet", "vsock", "datagram"), "EPERM")
    assert found == {**denied, "stream": "done", "seqpacket": "done", "asyncio": "awake"}


def test_namespaces_are_denied_and_processes_and_threads_work(tmp_path: Path) -> None:
    clone, unshare = HERE.number("clone"), HERE.number("unshare")
    found = inside(
        tmp_path,
        f"""
        import threading
        found = {{hex(flag): [syscall({clone}, flag | 17, 0, 0, 0, 0), syscall({unshare}, flag)]
                 for flag in (0x20000, 0x02000000, 0x04000000, 0x08000000, 0x10000000, 0x20000000, 0x40000000)}}
        thread = threading.Thread(target=lambda: found.__setitem__("thread", "done"))
        thread.start(); thread.join()
        found["child"] = subprocess.run([sys.executable, "-c", "raise SystemExit(7)"]).returncode
        found["files"] = syscall({unshare}, 0x400)
        report(found)
        """,
    )
    assert (found.pop("thread"), found.pop("child"), found.pop("files")) == ("done", 7, "done")
    assert all(answers == ["EPERM", "EPERM"] for answers in found.values())
    assert len(found) == 7


def test_typing_into_terminals_is_denied_also_with_high_bits(tmp_path: Path) -> None:
    ioctl = HERE.number("ioctl")
    found = inside(
        tmp_path,
        f"""
        report([syscall({ioctl}, 0, command | high, b"x")
                for command in (0x5412, 0x541C, 0x5413) for high in (0, 1 << 40)])
        """,
    )
    assert found == ["EPERM", "EPERM", "EPERM", "EPERM", "ENOTTY", "ENOTTY"]


def test_set_id_files_devices_and_pipes_with_names_cannot_be_made(tmp_path: Path) -> None:
    renameat2 = 316 if platform.machine() == "x86_64" else 276
    found = inside(
        tmp_path,
        f"""
        os.chdir("/tmp")
        def rename(old, new, flags):
            return syscall({renameat2}, -100, old, -100, new, flags)
        made = os.open("plain", os.O_CREAT | os.O_WRONLY, 0o755)
        report({{
            "chmod": error_of(lambda: os.chmod("plain", 0o4755)),
            "fchmod": error_of(lambda: os.fchmod(made, 0o2755)),
            "open": error_of(lambda: os.open("s", os.O_CREAT | os.O_WRONLY, 0o4755)),
            "device": error_of(lambda: os.mknod("d", 0o666 | stat.S_IFCHR, os.makedev(1, 3))),
            "fifo": error_of(lambda: os.mkfifo("f")),
            "socket": error_of(lambda: os.mknod("f", 0o666 | stat.S_IFSOCK)),
            "whiteout": rename(b"plain", b"other", 4),
            "plain chmod": error_of(lambda: os.chmod("plain", 0o700)),
            "file": error_of(lambda: os.mknod("file", 0o644)),
            "rename": rename(b"file", b"other", 1),
            "modes": [oct(os.stat(name).st_mode & 0o7777) for name in sorted(os.listdir())],
        }})
        """,
    )
    assert found == {
        **dict.fromkeys(("chmod", "fchmod", "open", "device", "fifo", "socket", "whiteout"), "EPERM"),
        **dict.fromkeys(("plain chmod", "file", "rename"), "done"),
        "modes": ["0o644", "0o700"],
    }


@pytest.mark.skipif(platform.machine() != "x86_64", reason="x32 and ia32 are second ABIs of x86_64 alone")
def test_x32_is_refused_and_ia32_kills(tmp_path: Path) -> None:
    code = """
    import mmap
    report(syscall(0x40000000 | 39))
    # mov eax, 20 (getpid of ia32); int 0x80; ret
    page = mmap.mmap(-1, 4096, prot=mmap.PROT_READ | mmap.PROT_WRITE | mmap.PROT_EXEC)
    page.write(b"\\xb8\\x14\\x00\\x00\\x00\\xcd\\x80\\xc3")
    ctypes.CFUNCTYPE(ctypes.c_long)(ctypes.addressof(ctypes.c_char.from_buffer(page)))()
    report("alive")
    """
    with running(tmp_path, code) as process:
        out, _ = read_to_end(process)
        status = process.wait(BOUND_S)
        assert process.exit_description == "killed by SIGSYS"
    assert json.loads(out) == "ENOSYS"
    assert status == 128 + signal.SIGSYS


def test_filter_covers_the_namespaces_first_process(tmp_path: Path) -> None:
    with running(tmp_path, "report(1); sys.stdin.read()") as process:
        for pid in (process.init_pid,):
            status = Path(f"/proc/{pid}/status").read_text(encoding="utf-8")
            assert "Seccomp:\t2" in status
            assert "NoNewPrivs:\t1" in status
            assert "CapEff:\t0000000000000000" in status

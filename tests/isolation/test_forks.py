"""What a call starts is as ever: forks, threads, pools and programs, although its own process is forked in an odd way.

The zygote keeps `threading` from renewing itself in a call's process, reaps no children there, and forks with a raw
system call. None of it may be felt.
"""

from __future__ import annotations

import signal

import pytest
from fumehood_server.model.tool import Isolation

from .bench import Bench

pytestmark = [pytest.mark.promise("S705"), pytest.mark.asyncio(loop_scope="module")]

_FORKED = """
import os, threading

def forked(code):
    "What `code` returns in a child."
    there, here = os.pipe()
    pid = os.fork()
    if pid == 0:
        try:
            os.write(here, repr(code()).encode())
        finally:
            os._exit(0)
    os.close(here)
    said = b""
    while part := os.read(there, 4096):
        said += part
    os.close(there)
    assert os.waitpid(pid, 0) == (pid, 0)
    return said.decode()

def threads():
    "What three threads, and who asks for them, find."
    found, lock = [], threading.Lock()
    def work(number):
        with lock:
            found.append(number)
    started = [threading.Thread(target=work, args=(number,)) for number in range(3)]
    for each in started:
        each.start()
    for each in started:
        each.join()
    main = threading.main_thread()
    return (
        sorted(found), threading.active_count(), threading.current_thread() is main, main.is_alive(),
        main.ident == threading.get_ident(), [each.is_alive() for each in started],
    )
"""
_AS_EVER = str(([0, 1, 2], 1, True, True, True, [False] * 3))

WORKS = {
    "threads": (_FORKED + "result = repr(threads())", _AS_EVER),
    "number of the main thread": (
        _FORKED + "result = [threading.main_thread().native_id, threading.get_native_id(), os.getpid()]",
        [1, 1, 1],
    ),
    "threads of a child": (_FORKED + "result = forked(threads)", _AS_EVER),
    "threads of a grandchild": (_FORKED + "result = forked(lambda: forked(threads))", repr(_AS_EVER)),
    "child of a thread": (
        _FORKED
        + """
found = []
thread = threading.Thread(target=lambda: found.append(forked(threads)))
thread.start(); thread.join()
result = found[0]
""",
        _AS_EVER,
    ),
    "child beside a thread that holds a lock": (
        _FORKED
        + """
holds, done = threading.Event(), threading.Event()
def hold():
    with threading._active_limbo_lock:
        holds.set()
        done.wait()
other = threading.Thread(target=hold, daemon=True)
other.start()
holds.wait()
answer = forked(lambda: (threads()[:4], other.is_alive()))
done.set(); other.join()
result = answer
""",
        str((([0, 1, 2], 1, True, True), False)),
    ),
    "pool of processes": (
        (
            "import multiprocessing\nwith multiprocessing.get_context('fork').Pool(2) as pool:\n"
            "    result = pool.map(abs, [-1, -2, -3])"
        ),
        [1, 2, 3],
    ),
    "executor": (
        (
            "import multiprocessing\nfrom concurrent.futures import ProcessPoolExecutor as Pool\n"
            "with Pool(2, mp_context=multiprocessing.get_context('fork')) as pool:\n"
            "    result = list(pool.map(abs, [-1, -2, -3]))"
        ),
        [1, 2, 3],
    ),
    "program": (
        (
            "import subprocess\nresult = [subprocess.run(['sh', '-c', 'exit 7']).returncode, "
            "subprocess.check_output(['echo', 'said'], text=True)]"
        ),
        [7, "said\n"],
    ),
    "program of asyncio's": (
        (
            "import asyncio\nasync def main():\n"
            "    process = await asyncio.create_subprocess_exec('sh', '-c', 'exit 7')\n"
            "    return await process.wait()\n"
            "result = asyncio.run(main())"
        ),
        7,
    ),
    "disposition of SIGCHLD": (
        (
            "import signal\nresult = [signal.getsignal(signal.SIGCHLD) is signal.SIG_DFL, "
            "[line.split()[1] for line in open('/proc/self/status') if line[:6] in ('SigBlk', 'SigPnd', 'ShdPnd')]]"
        ),
        [True, ["0" * 16] * 3],
    ),
    "SIGCHLD is heard": (
        (
            "import os, signal\nheard = []\nsignal.signal(signal.SIGCHLD, lambda *_: heard.append(1))\n"
            "pid = os.fork()\nif pid == 0:\n    os._exit(5)\n"
            "result = [os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]), heard]"
        ),
        [5, [1]],
    ),
    "environment of what it starts": (
        (
            "import subprocess\nlines = subprocess.check_output(['env'], text=True).splitlines()\n"
            "result = [any(line.startswith(name) for line in lines) for name in ('LD_', 'PYTHON')]"
        ),
        [False, True],
    ),
    "death with the zygote": (
        (
            "import ctypes\nasked = ctypes.c_int(-1)\nctypes.CDLL(None).prctl(2, ctypes.byref(asked), 0, 0, 0)\n"
            "result = asked.value"
        ),
        9,
    ),
    "limit of processes": ("import resource\nresult = resource.getrlimit(resource.RLIMIT_NPROC)", [64, 64]),
    "capabilities, filters and no new rights": (
        (
            "lines = [line.partition(':') for line in open('/proc/self/status')]\n"
            "status = {name: value.strip() for name, _, value in lines}\n"
            "result = [int(status[each], 16) for each in ('CapInh', 'CapPrm', 'CapEff', 'CapBnd', 'CapAmb')] "
            "+ [status['NoNewPrivs'], status['Seccomp'], int(status['Seccomp_filters']) >= 3]"
        ),
        [0, 0, 0, 0, 0, "1", "2", True],
    ),
}


@pytest.mark.parametrize(("code", "expected"), WORKS.values(), ids=WORKS)
async def test_call_has_all_that_a_process_has(shared: Bench, code: str, expected: object) -> None:
    assert await shared.run(code) == expected


_OPEN = """
import os
import signal
from fumehood_sdk.runtime.descriptors import _wire
def is_open(number):
    try:
        os.fstat(number)
    except OSError:
        return False
    return True
wire = list(_wire)
there, here = os.pipe()
pid = os.fork()
if pid == 0:
    os.write(here, repr([is_open(each) for each in (*wire, 0, 1, 2, there)]).encode())
    os._exit(0)
os.waitpid(pid, 0)
result = [[is_open(each) for each in wire], eval(os.read(there, 4096))]
"""


@pytest.mark.parametrize("isolation", list(Isolation))
async def test_wire_is_closed_in_what_a_call_forks(shared: Bench, isolation: Isolation) -> None:
    own, forked = await shared.run(_OPEN, spec=shared.spec(isolation=isolation))
    assert own == [True, True], "control: the process that serves has the wire"
    assert forked == [False, False, True, True, True, True]


_KILLED_AT_BIRTH = """
import os, signal
result = []
for _ in range(50):
    pid = os.fork()
    if pid == 0:
        signal.pause()
    os.kill(pid, signal.SIGTERM)
    result.append(os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]))
"""


async def test_sigterm_ends_what_a_call_forks_also_before_it_ran(shared: Bench) -> None:
    assert await shared.run(_KILLED_AT_BIRTH) == [-signal.SIGTERM] * 50


_HEARS_ITSELF = """
import os, signal, time
signal.signal(signal.SIGTERM, lambda *_: os._exit(7))
result = []
for _ in range(2):
    there, here = os.pipe()
    pid = os.fork()
    if pid == 0:
        os.write(here, b"x")
        while True:
            time.sleep(0.01)  # a signal just before a pause would be heard after it, which is never
    os.read(there, 1)  # what comes before its code runs again, Python forgets in a fork
    os.kill(pid, signal.SIGTERM)
    result.append(os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]))
"""


async def test_handler_of_the_authors_own_is_inherited_by_what_a_call_forks(shared: Bench) -> None:
    assert await shared.run(_HEARS_ITSELF) == [7, 7]


async def test_zygote_of_asynchronous_tools_has_imported_what_they_need(shared: Bench) -> None:
    assert await shared.run("import sys; result = 'fumehood_sdk.runtime.aio' in sys.modules") is True

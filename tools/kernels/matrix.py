"""The matrix: each kernel that is booted, how it is set up, and what runs there."""

from __future__ import annotations

from dataclasses import dataclass, replace

from tools.kernels.apparmor import NO_USERNS, USERNS

ROOT_USER = "root"
ORDINARY_USER = "tester"
"""Made in the root file system."""
SHORT, FULL, NONE = "short", "full", "none"
"""How much of an entry's tests runs."""


@dataclass(frozen=True, slots=True)
class Run:
    """One service of systemd in the guest, in which `fumehood doctor` and then pytest run."""

    user: str
    delegate: bool = True
    """`Delegate=` of the service: whether its control group is its own."""
    tests: tuple[str, ...] = ()
    """What pytest is given by default. Empty: doctor alone."""
    full: tuple[str, ...] = ()
    """What it is given for `FULL=1`. Empty: the same."""
    backend: str = "namespaces"
    """Which backend doctor must find usable there: "namespaces", "landlock" or "none"."""

    weaker: tuple[str, ...] = ()
    """Which layers doctor must find weaker there, in alphabetical order."""
    lacks: tuple[str, ...] = ()
    """Where something less than namespaces is found: what doctor must say is not there, or its remedy, each a part."""
    profile: str = ""
    """Which profile of `tools.kernels.apparmor` confines the service. Empty: none."""
    unit: bool = False
    """Not a service of ours, but docs/deploy/fumehood.service itself."""

    @property
    def name(self) -> str:
        """How results and expected differences name it."""
        if self.unit:
            return "fumehood.service"
        confined = f", confined as {self.profile}" if self.profile else ""
        return f"{self.user}{'' if self.delegate else ', not delegated'}{confined}"


@dataclass(frozen=True, slots=True)
class Entry:
    """One boot."""

    name: str
    about: str
    """For the table of docs/sandbox.md."""
    kernel: str
    runs: tuple[Run, ...]
    architecture: str = "amd64"
    parameters: str = ""
    """More of the kernel's command line."""
    sysctls: tuple[tuple[str, str], ...] = ()
    limit_s: int = 7200
    """The guest is ended then, five times as late with all tests. Without KVM all takes some ten times as long."""

    @property
    def profiles(self) -> bool:
        """Whether any run is confined by AppArmor."""
        return any(run.profile for run in self.runs)

    def given(self, tests: str) -> Entry:
        """The same with other tests in each run: SHORT, FULL, NONE, or pytest's own, with commas between them."""

        def chosen(run: Run) -> tuple[str, ...]:
            if tests in {SHORT, FULL}:
                return (run.full or run.tests) if tests == FULL else run.tests
            return () if tests == NONE else tuple(tests.split(","))

        return replace(self, runs=tuple(replace(run, tests=chosen(run), full=()) for run in self.runs))


DENIALS = "tests/attacks/test_denials.py"
ATTACKS = (DENIALS, "tests/attacks/test_neighbours.py", "tests/attacks/test_next_start.py")
LAYERS = (
    *("tests/sandbox/test_layers.py", "tests/sandbox/test_process.py", "tests/sandbox/test_seccomp.py"),
    *("tests/sandbox/test_file_system.py", "tests/sandbox/test_python_module.py", "tests/sandbox/test_forking.py"),
)
CGROUPS = ("tests/resources/test_cgroups.py", "tests/resources/test_leaf_entry.py")
ENDINGS = tuple(f"tests/resources/test_{name}.py" for name in ("cpus", "endings", "left_running", "limits"))
"""How limits end what reaches them, with a control group and without."""
LANDLOCK_ONLY_ATTACKS = ("tests/landlock_only/cases_attacks.py",)
"""Every attack at a level, in one case. test_cases.py beside it runs them too, out of a reporter's sight."""
LANDLOCK_ONLY = (
    *LANDLOCK_ONLY_ATTACKS,  # by name, which pytest forgets where it is given their folder as well
    *(f"tests/landlock_only/test_{name}.py" for name in ("cases", "filter", "sidecar")),
)
EVERYTHING = ("tests/attacks", "tests/sandbox", "tests/resources")
AS_USER = (*ATTACKS, *LAYERS, *CGROUPS)
SHORTEST = (DENIALS, "tests/sandbox/test_layers.py")
QUICK = (*SHORTEST, *CGROUPS)
AT_ONE_LEVEL = ("-k", "external or not test_denials")
"""The attacks at the level that grants most: each other one takes half a minute more."""
_WEAKER_ALONE = ("file system", "identity", "ipc", "network", "processes", "rlimits", "scratch")
_WEAKER_OF_ROOT = tuple(layer for layer in _WEAKER_ALONE if layer != "identity")
_NO_USERNS = (f"the profile {NO_USERNS} of AppArmor confines this process and must have `userns`",)
_NO_NAMESPACE = "bwrap: No permissions to create new namespace"
_NO_SCOPES = "the kernel has ABI 2, and without namespaces ABI 6 is needed"
_NO_LANDLOCK = ("kernel support: the kernel has none.", "the kernel has none, and without namespaces ABI 6 is needed")

ENTRIES = (
    Entry(
        "quick", "Debian 12's kernel, the attacks at one level", "6.1",
        (Run(ROOT_USER, tests=(*QUICK, *AT_ONE_LEVEL)),),
    ),
    Entry(
        "6.1", "Debian 12's kernel", "6.1",
        (
            Run(ROOT_USER, tests=QUICK, full=EVERYTHING),
            Run(ORDINARY_USER, tests=(*QUICK, *AT_ONE_LEVEL), full=AS_USER),
        ),
    ),
    Entry(
        "6.12", "Debian 13's kernel", "6.12",
        (
            Run(ROOT_USER, tests=(*QUICK, *ENDINGS, *AT_ONE_LEVEL), full=(*EVERYTHING, *LANDLOCK_ONLY)),
            Run(ORDINARY_USER, tests=(*QUICK, *ENDINGS, *AT_ONE_LEVEL), full=(*AS_USER, *ENDINGS)),
        ),
    ),
    Entry(
        "aarch64", "Debian 13's kernel on aarch64", "6.12",
        (
            Run(
                ROOT_USER,
                tests=(*QUICK, "tests/sandbox/test_seccomp.py", *AT_ONE_LEVEL),
                full=(*QUICK, "tests/sandbox/test_seccomp.py", "tests/sandbox/test_filter.py"),
            ),
        ),
        architecture="arm64",
    ),
    Entry(
        "unit", "docs/deploy/fumehood.service, as the page installs it", "6.12",
        (Run("fumehood", unit=True),),
    ),
    Entry(
        "unit-6.1", "the same", "6.1",
        (Run("fumehood", unit=True),),
    ),
    Entry(
        "not-delegated", "no control group of one's own: `Delegate=no`", "6.12",
        (
            Run(
                ORDINARY_USER, delegate=False, tests=(*SHORTEST, *AT_ONE_LEVEL), full=SHORTEST, weaker=("cgroup",)
            ),
            Run(ROOT_USER, delegate=False, full=SHORTEST[1:], weaker=("cgroup",)),
        ),
    ),
    Entry(
        "not-delegated-6.1", "the same", "6.1",
        (Run(ORDINARY_USER, delegate=False, tests=(*SHORTEST, *AT_ONE_LEVEL), weaker=("cgroup",)),),
    ),
    Entry(
        "no-user-namespaces", "user namespaces off: `kernel.unprivileged_userns_clone=0`", "6.12",
        (
            Run(
                ORDINARY_USER,
                tests=LANDLOCK_ONLY,
                backend="landlock",
                weaker=_WEAKER_ALONE,
                lacks=(_NO_NAMESPACE,),
            ),
            # Root's bubblewrap may still make its namespaces, and a call's process, which has no rights, may not.
            Run(ROOT_USER, tests=(*SHORTEST, *AT_ONE_LEVEL), full=QUICK, weaker=("isolation",)),
        ),
        sysctls=(("kernel.unprivileged_userns_clone", "0"),),
    ),
    Entry(
        "no-user-namespaces-6.1", "the same on a kernel without Landlock's scopes", "6.1",
        (Run(ORDINARY_USER, backend="none", lacks=(_NO_NAMESPACE, _NO_SCOPES)),),
        sysctls=(("kernel.unprivileged_userns_clone", "0"),),
    ),
    Entry(
        "no-landlock", "Landlock off: not in `lsm=`", "6.12",
        tuple(Run(user, backend="none", lacks=_NO_LANDLOCK) for user in (ROOT_USER, ORDINARY_USER)),
        parameters="lsm=lockdown,capability,yama,apparmor",
    ),
    Entry(
        "yama", "ptrace for administrators alone: `kernel.yama.ptrace_scope=2`", "6.12",
        (
            Run(ORDINARY_USER, tests=(*SHORTEST, *AT_ONE_LEVEL), full=(DENIALS, *LAYERS)),
            Run(ROOT_USER, full=QUICK),
        ),
        sysctls=(("kernel.yama.ptrace_scope", "2"),),
    ),
    Entry(
        "apparmor", "user namespaces denied by AppArmor: a profile of ABI 4.0 without `userns`", "6.12",
        (
            Run(
                ORDINARY_USER,
                tests=(*LANDLOCK_ONLY_ATTACKS, LANDLOCK_ONLY[-1]),
                full=LANDLOCK_ONLY,
                backend="landlock",
                weaker=_WEAKER_ALONE,
                lacks=_NO_USERNS,
                profile=NO_USERNS,
            ),
            Run(ORDINARY_USER, tests=(*SHORTEST, *AT_ONE_LEVEL), full=(DENIALS, *LAYERS), profile=USERNS),
            # The rule holds for root's bubblewrap as well.
            Run(ROOT_USER, backend="landlock", weaker=_WEAKER_OF_ROOT, lacks=_NO_USERNS, profile=NO_USERNS),
        ),
    ),
)  # fmt: skip
BY_NAME = {entry.name: entry for entry in ENTRIES}

"""The group supervisor: starts the program in a child that can't leave its process group, and ends the group.

It does what a pid namespace's first process does: what loses its parent becomes its child, its end is everybody's, and
it dies with the launcher. It is outside the program's Landlock domain, so the program can neither signal nor trace it.
Like the inner stage, whose steps the child goes through, it is run by `python -I -S` and takes
nothing of the package but what it is handed. Read `main` and `_run_program` for the order.
"""

import _signal  # type: ignore[import-not-found] # what signal, an import of 3 ms, is made from
import os

from fumehood_sandbox.inside.layers import (
    check_status,
    close_descriptors,
    drop_capabilities,
    drop_identity,
    empty_bounding_set,
    limit,
    load_filter,
    make_ruleset,
    restrict_self,
    status_of,
)
from fumehood_sandbox.inside.program import become, enter, forget_stages, prepare_module
from fumehood_sandbox.inside.report import fail, report
from fumehood_sandbox.inside.speculation import limit_speculation
from fumehood_sandbox.kernel.constants import (
    CAP_KILL,
    CAP_SETGID,
    CAP_SETPCAP,
    CAP_SETUID,
    LAST_DESCRIPTOR,
    PR_SET_CHILD_SUBREAPER,
    PR_SET_PDEATHSIG,
    SIGNALLED_STATUS,
)
from fumehood_sandbox.kernel.libc import StepError, call
from fumehood_sandbox.landlock_only.removal import empty

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, NoReturn

STEP = "keeper"
"""Its step in errors, which callers see."""
_CAPABILITIES_OF_ROOT = {"CAP_KILL": CAP_KILL, "CAP_SETGID": CAP_SETGID, "CAP_SETUID": CAP_SETUID}
"""What a launcher that is root needs to make a process another user's, and to end it then."""
_REMOVAL_S = 5.0
"""For what the program left in its scratch folder; some 100,000 files. The rest stays, closed to everybody else."""


def main(config: "dict[str, Any]") -> None:
    """Be the supervisor; come back only in the child, when a module's code has run to its end."""
    status: int = config["status_fd"]
    leader = 0
    try:
        # From here on the launcher's death, and the SIGTERM by which it asks for the end, are waited for by sigwait().
        _signal.pthread_sigmask(_signal.SIG_BLOCK, {_signal.SIGTERM, _signal.SIGCHLD})
        _die_with(config["launcher"], _signal.SIGTERM)
        call(STEP, "prctl", PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0, what="become a subreaper")
        if config["identity"] is not None:
            _check_rights_of_root()
        supervisor = os.getpid()
        leader = os.fork()
    except StepError as error:
        fail(status, *error.fields)
    except BaseException as error:  # noqa: BLE001 - whatever it is, the launcher must hear of it
        fail(status, STEP, f"{type(error).__name__}: {error}", "", str(getattr(error, "errno", 0) or 0))
    if leader == 0:
        _run_program(config, supervisor)
    else:
        _supervise(config, leader)


def _die_with(parent: int, number: int) -> None:
    """Have a signal sent at the parent's death, also if it has died already."""
    call(STEP, "prctl", PR_SET_PDEATHSIG, number, 0, 0, 0, what="die with the parent")
    if os.getppid() != parent:
        raise StepError(STEP, "the parent is dead")


def _check_rights_of_root() -> None:
    effective = int(status_of("self")["CapEff"], 16)
    missing = [name for name, bit in _CAPABILITIES_OF_ROOT.items() if not effective >> bit & 1]
    if missing:
        raise StepError("rights", f"root lacks {', '.join(missing)}")


# The child.


def _run_program(config: "dict[str, Any]", supervisor: int) -> None:
    """Apply every layer and become the program."""
    status: int = config["status_fd"]
    try:
        os.setsid()
        _signal.pthread_sigmask(_signal.SIG_SETMASK, set())
        ruleset = make_ruleset(config["landlock"])
        limit(status, config["rlimits"])
        sets = _drop_identity(status, config["identity"])
        # Changed ids take this back, so it comes after them; execve(2) and dropped capabilities don't.
        _die_with(supervisor, _signal.SIGKILL)
        _check_access(config["needed"])
        limit_speculation(status)
        restrict_self(status, ruleset, config["landlock"]["detail"])
        close_descriptors(status)
        load_filter(config["filter"], what="load the filter")
        check_status(status, config["identity"], sets)
        enter(config["working_directory"])
        report(status, "leader", str(os.getpid()))
        if config["executable"]:
            report(status, "ready")
            become(config["executable"], config["environment"])
        code, module = prepare_module(config)
        report(status, "ready")
        os.close(status)
    except StepError as error:
        fail(status, *error.fields)
    except BaseException as error:  # noqa: BLE001 - likewise
        fail(status, "inner", f"{type(error).__name__}: {error}", "", str(getattr(error, "errno", 0) or 0))
    del status, ruleset, config, sets, supervisor
    forget_stages()
    exec(code, module)  # noqa: S102 - the module that the caller asked for


def _drop_identity(status: int, identity: "tuple[int, int] | None") -> "tuple[str, ...]":
    """Give up what can be given up. Returns the sets of capabilities that must be empty from here on."""
    sets: tuple[str, ...] = ("CapInh", "CapPrm", "CapEff", "CapAmb")
    detail = "inheritable, permitted, effective and ambient"
    if int(status_of("self")["CapEff"], 16) >> CAP_SETPCAP & 1:
        empty_bounding_set()
        sets, detail = (*sets, "CapBnd"), "inheritable, permitted, effective, bounding and ambient"
    drop_identity(status, identity)
    drop_capabilities(status, detail)
    return sets


def _check_access(needed: "list[tuple[str, int]]") -> None:
    for path, mode in needed:
        if not os.access(path, mode):
            raise StepError("access", f"user {os.getuid()} has no rights to it", path)


# The supervisor.


def _supervise(config: "dict[str, Any]", leader: int) -> "NoReturn":
    """Wait for the program's end, the launcher's death or its SIGTERM; then kill the group and reap it."""
    try:
        # The program's ends of the pipes must be nobody else's, and the files of /proc must stay what they are: the
        # kernel makes them anew when it has forgotten them, and Landlock's rules would not know the new ones.
        held = [os.open(path, os.O_PATH | os.O_CLOEXEC) for path in _existing(config["process_files"], leader)]
        null = os.open("/dev/null", os.O_RDWR)
        for standard in (0, 1, 2):
            os.dup2(null, standard)
        _close_all_but(held)
        code = _wait_for_end(leader)
    finally:
        os.killpg(leader, _signal.SIGKILL)  # the leader is not reaped yet, so the number is still its group's
        status = _reap_all(leader)
    _remove_folders(config)
    os._exit(SIGNALLED_STATUS + _signal.SIGKILL if code is None else status)


def _existing(paths: "list[str]", leader: int) -> "list[str]":
    own = (("/thread-self/", f"/{leader}/task/{leader}/"), ("/self/", f"/{leader}/"))
    for inside, outside in own:
        paths = [path.replace(inside, outside) for path in paths]
    return [path for path in paths if os.path.lexists(path)]


def _close_all_but(held: "list[int]") -> None:
    last = 2
    for descriptor in sorted(held):
        os.closerange(last + 1, descriptor)
        last = descriptor
    os.closerange(last + 1, LAST_DESCRIPTOR)


def _wait_for_end(leader: int) -> "int | None":
    """Reap orphans meanwhile. Returns the leader's number once it has ended, None if SIGTERM came first."""
    while True:
        found = os.waitid(os.P_ALL, 0, os.WEXITED | os.WNOHANG | os.WNOWAIT)
        if found is None:
            if _signal.sigwait({_signal.SIGTERM, _signal.SIGCHLD}) == _signal.SIGTERM:
                return None
        elif found.si_pid == leader:
            return leader
        else:
            os.waitpid(found.si_pid, 0)


def _reap_all(leader: int) -> int:
    """Reap until nobody is left. Returns the leader's exit status, as a shell counts it."""
    code = 0
    while True:
        try:
            pid, status = os.waitpid(-1, 0)
        except ChildProcessError:
            return code
        if pid == leader:
            code = os.waitstatus_to_exitcode(status)
            code = code if code >= 0 else SIGNALLED_STATUS - code


def _remove_folders(config: "dict[str, Any]") -> None:
    """Remove the folders. What the program made is removed with the program's rights, and no more."""
    remover = os.fork()
    if remover == 0:
        try:
            if config["identity"] is not None:
                user, group = config["identity"]
                os.setgroups([])
                os.setresgid(group, group, group)
                os.setresuid(user, user, user)
            empty(config["scratch"], _REMOVAL_S)
        finally:
            os._exit(0)
    os.waitpid(remover, 0)
    try:
        empty(config["view"], _REMOVAL_S)
        for folder in (config["scratch"], config["view"], config["base"]):
            os.rmdir(folder)  # noqa: PTH106 - pathlib is an import
    except OSError:
        return  # what is left lies in a folder that nobody else can enter

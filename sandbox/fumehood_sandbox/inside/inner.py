"""The inner stage: runs inside the namespaces, applies the last layers to itself, and becomes the program.

`launch` hands this file's code to `python -I -S` over a descriptor; nothing of the package can be imported here, and
each import costs every start, so this file takes only what the interpreter has loaded anyway, `libc` and `resource`.
Read `main` for the order. Each step reports to the launcher what it found after it was done; the first that fails is
reported and ends the process.
"""

import os
import sys
import time

from fumehood_sandbox.kernel.libc import StepError, call, function, pinned, restore_signals, say

TYPE_CHECKING = False
if TYPE_CHECKING:
    from types import CodeType
    from typing import Any, NoReturn

_PR_SET_DUMPABLE = 4
_PR_SET_SECCOMP = 22
_PR_CAPBSET_READ = 23
_PR_CAPBSET_DROP = 24
_PR_SET_NO_NEW_PRIVS = 38
_SECCOMP_MODE_FILTER = 2
_INSTRUCTION_BYTES = 8
_PR_CAP_AMBIENT = 47
_PR_CAP_AMBIENT_CLEAR_ALL = 4
_CAPABILITY_VERSION_3 = 0x20080522
_LAST_POSSIBLE_CAPABILITY = 63
# The same on every architecture, see landlock(7).
_SYS_LANDLOCK_CREATE_RULESET = 444
_SYS_LANDLOCK_ADD_RULE = 445
_SYS_LANDLOCK_RESTRICT_SELF = 446
_LANDLOCK_RULE_PATH_BENEATH = 1
_LANDLOCK_RULE_NET_PORT = 2
_LANDLOCK_CONNECT_TCP = 0b10
_RELAY_BACKLOG = 64
_LANDLOCK_ON_FILES = 0b1100000000000111  # execute, write_file, read_file, truncate, ioctl_dev: all that a file has
_FAILED_STATUS = 125
CAPABILITY_SETS = ("CapInh", "CapPrm", "CapEff", "CapAmb", "CapBnd")
_INTERVAL_S = 0.001
_PATIENCE = 5000
"""Pid 1 is ready long before this stage, as a rule; on a machine where it takes 5 s, no start succeeds."""


def main(config: "dict[str, Any]") -> None:
    """Apply every layer and become the program. Comes back only by the exit of a `PythonModule`."""
    status: int = config["status_fd"]
    try:
        ruleset = make_ruleset(config["landlock"])
        if config["relay_fd"] is not None:
            port = _open_relay(status, config["relay_fd"])
            _allow_connecting(ruleset, config["landlock"]["attributes"], port)
            config["environment"] |= _proxy_variables(port)
        limit(status, config["rlimits"])
        empty_bounding_set()
        drop_identity(status, config["identity"])
        load_filter(config["seal"], what="keep the limits")
        drop_capabilities(status)
        restrict(status, ruleset, config["landlock"]["detail"])
        close_descriptors(status, config.get("zygote"))
        check_what_is_in_force(status, config["identity"])
        enter(config["working_directory"])
        if config["executable"]:
            _ready(status)
            become(config["executable"], config["environment"])
        code, module = prepare_module(config)
        zygote = _prepare_zygote(config)
        _ready(status)
        os.close(status)
    except StepError as error:
        fail(status, *error.fields)
    except BaseException as error:  # noqa: BLE001 - whatever it is, the launcher must hear of it
        fail(status, "inner", f"{type(error).__name__}: {error}", "", str(getattr(error, "errno", 0) or 0))
    del status, ruleset, config
    forget_stages()
    if zygote is not None:
        sys.modules["fumehood_zygote"] = zygote
    del zygote
    exec(code, module)  # noqa: S102 - the module that the caller asked for


def forget_stages() -> None:
    """Leave nothing of the package where the program could import it."""
    for name in [name for name in sys.modules if name.partition(".")[0] == "fumehood_sandbox"]:
        del sys.modules[name]


def fail(status: int, *fields: str) -> "NoReturn":
    """Report a failed step and end this process."""
    try:
        say(status, "error", *fields)
    finally:  # the launcher may be gone
        os._exit(_FAILED_STATUS)


def _ready(status: int) -> None:
    """Say that the program is about to run, once it is sure that it dies with the launcher.

    Pid 1 asks to be killed at bubblewrap's death only late in its own start, and in vain when bubblewrap is dead by
    then. It asks before it loads the filter: so wait until that shows, and then write to the launcher. If that works,
    both were alive when pid 1 had asked; if it doesn't, the exception ends this process, and pid 1 ends with it.
    """
    for _ in range(_PATIENCE):
        if status_of("1").get("Seccomp", "").strip() == "2":
            say(status, "ready")
            return
        time.sleep(_INTERVAL_S)
    raise StepError("seccomp", "pid 1 of the namespace runs without the filter")


def status_of(process: str) -> "dict[str, str]":
    """The fields of /proc/PROCESS/status."""
    with open(f"/proc/{process}/status", encoding="utf-8", errors="replace") as stream:  # noqa: PTH123 - an import
        return dict(line.split(":\t", 1) for line in stream if ":\t" in line)


def make_ruleset(landlock: "dict[str, Any]") -> int:
    """Make the Landlock rule set while root's identity can still reach what it allows. Returns its descriptor.

    A rule's path may be a number: a descriptor of what is meant.
    """
    attributes: bytes = landlock["attributes"]
    create = (_SYS_LANDLOCK_CREATE_RULESET, attributes, len(attributes), 0)
    ruleset = call("landlock", "syscall", *create, what="create the rule set")
    for path, access in landlock["rules"]:
        try:
            descriptor = os.open(path, os.O_PATH | os.O_CLOEXEC) if isinstance(path, str) else path
            is_folder = os.fstat(descriptor).st_mode & 0o170000 == 0o040000  # noqa: PLR2004 - S_IFMT, S_IFDIR
        except OSError as error:
            raise StepError("landlock", f"open: {error.strerror}", str(path), error.errno or 0) from error
        allowed = access if is_folder else access & _LANDLOCK_ON_FILES
        # struct landlock_path_beneath_attr is packed: 8 bytes of access, 4 of descriptor.
        rule = allowed.to_bytes(8, sys.byteorder) + descriptor.to_bytes(4, sys.byteorder)
        add = (_SYS_LANDLOCK_ADD_RULE, ruleset, _LANDLOCK_RULE_PATH_BENEATH, rule, 0)
        call("landlock", "syscall", *add, what="add a rule", path=str(path))
        os.close(descriptor)  # there may be more rules than a process may have descriptors
    return ruleset


def _open_relay(status: int, channel_fd: int) -> int:
    """Make the one socket that listens in the network namespace, and hand it to the launcher. Returns its port.

    Nobody inside keeps it: the launcher accepts what connects, so no process of the relay's is in here.
    """
    import _socket  # noqa: PLC0415 - few programs need a relay; socket itself would import much

    try:
        listener = _socket.socket(_socket.AF_INET, _socket.SOCK_STREAM)
        listener.bind(("127.0.0.1", 0))
        listener.listen(_RELAY_BACKLOG)
        port: int = listener.getsockname()[1]
        channel = _socket.socket(_socket.AF_UNIX, _socket.SOCK_STREAM, 0, channel_fd)
        handed = listener.fileno().to_bytes(4, sys.byteorder)
        channel.sendmsg([b"\0"], [(_socket.SOL_SOCKET, _socket.SCM_RIGHTS, handed)])
        channel.close()
        listener.close()
    except OSError as error:
        raise StepError("relay", error.strerror or str(error), "", error.errno or 0) from error
    say(status, "layer", "relay", f"127.0.0.1:{port} of an empty network namespace; TCP sockets that connect")
    return port


def _allow_connecting(ruleset: int, attributes: bytes, port: int) -> None:
    """Where Landlock knows of TCP (ABI 4: the attributes then have a second field), allow this port alone."""
    if len(attributes) > 8:  # noqa: PLR2004 - the first field's bytes
        # struct landlock_net_port_attr: 8 bytes of access, 8 of port, both in the host's order.
        rule = _LANDLOCK_CONNECT_TCP.to_bytes(8, sys.byteorder) + port.to_bytes(8, sys.byteorder)
        add = (_SYS_LANDLOCK_ADD_RULE, ruleset, _LANDLOCK_RULE_NET_PORT, rule, 0)
        call("landlock", "syscall", *add, what="allow the relay's port")


def _proxy_variables(port: int) -> "dict[str, str]":
    """Each name that programs look for. curl reads http_proxy in lower case alone, others the capitals."""
    url = f"http://127.0.0.1:{port}"
    found = {}
    for name, value in (("HTTP_PROXY", url), ("HTTPS_PROXY", url), ("ALL_PROXY", url), ("NO_PROXY", "")):
        found[name] = found[name.lower()] = value
    return found


def limit(status: int, rlimits: "list[tuple[str, int]]") -> None:
    """Set the limits, soft and hard, none above what this process may have."""
    import resource  # noqa: PLC0415 - not before the try block of `main`

    for name, value in rlimits:
        number = getattr(resource, name)
        _, ceiling = resource.getrlimit(number)
        wanted = value if ceiling == resource.RLIM_INFINITY else min(value, ceiling)
        try:
            resource.setrlimit(number, (wanted, wanted))
        except (OSError, ValueError) as error:
            raise StepError("rlimits", f"{name}={wanted}: {error}", "", getattr(error, "errno", 0) or 0) from error
    in_force = ", ".join(f"{name[7:].lower()}={resource.getrlimit(getattr(resource, name))[1]}" for name, _ in rlimits)
    say(status, "layer", "rlimits", in_force)


def empty_bounding_set() -> None:
    """Only possible while CAP_SETPCAP is still held, so before the user id changes."""
    prctl = function("prctl")
    for capability in range(_LAST_POSSIBLE_CAPABILITY + 1):
        if prctl(_PR_CAPBSET_READ, capability, 0, 0, 0) == 1:
            call("capabilities", "prctl", _PR_CAPBSET_DROP, capability, 0, 0, 0, what=f"drop {capability}")


def drop_identity(status: int, identity: "tuple[int, int] | None") -> None:
    """Set no_new_privs and become this user and group, without others; None: stay who this process is."""
    call("identity", "prctl", _PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0, what="no_new_privs")
    if identity is not None:
        user, group = identity
        try:
            os.setgroups([])
            os.setresgid(group, group, group)
            os.setresuid(user, user, user)
        except OSError as error:
            raise StepError("identity", f"become {user}:{group}: {error.strerror}", "", error.errno or 0) from error
    users, groups = set(os.getresuid()), set(os.getresgid())
    if 0 in users or 0 in groups:
        raise StepError("identity", f"still root: uids {users}, gids {groups}")
    say(status, "layer", "identity", f"uid {os.getuid()}, gid {os.getgid()}, no root among the ids")


def load_filter(program: bytes, *, what: str) -> None:
    """Load a system-call filter. It can't be taken off, and every descendant has it. Needs no_new_privs."""
    address, held = pinned(program)
    # struct sock_fprog: the count of instructions in 16 bits, padded to a pointer's size, and their address.
    count = (len(program) // _INSTRUCTION_BYTES).to_bytes(2, sys.byteorder)
    structure = count + bytes(6) + address.to_bytes(8, sys.byteorder)
    call("seccomp", "prctl", _PR_SET_SECCOMP, _SECCOMP_MODE_FILTER, structure, 0, 0, what=what)
    del held


def drop_capabilities(status: int, detail: str = "inheritable, permitted, effective, bounding and ambient") -> None:
    """Empty all sets but the bounding one. `detail` names what is empty by then."""
    call("capabilities", "prctl", _PR_CAP_AMBIENT, _PR_CAP_AMBIENT_CLEAR_ALL, 0, 0, 0, what="clear the ambient set")
    header = _CAPABILITY_VERSION_3.to_bytes(4, sys.byteorder) + bytes(4)  # process 0: this one
    call("capabilities", "capset", header, bytes(24), what="clear the sets")
    # Changed ids make a process undumpable, and /proc/self root's. Nothing here is hidden from the program itself.
    call("capabilities", "prctl", _PR_SET_DUMPABLE, 1, 0, 0, 0, what="dumpable")
    say(status, "layer", "capabilities", f"{detail} sets cleared")


def restrict(status: int, ruleset: int, detail: str) -> None:
    """Enter a Landlock domain of these rules."""
    call("landlock", "syscall", _SYS_LANDLOCK_RESTRICT_SELF, ruleset, 0, what="restrict")
    say(status, "layer", "landlock", detail)


def close_descriptors(status: int, zygote: "dict[str, Any] | None" = None) -> None:
    """Close all but 0, 1, 2, what a zygote gets its orders from, and the status pipe, which closes at execve(2)."""
    kept = sorted((status, zygote["control_fd"]) if zygote else (status,))
    for fd, before in zip(kept, (2, *kept), strict=False):
        os.set_inheritable(fd, False)
        os.closerange(before + 1, fd)
    os.closerange(kept[-1] + 1, 0x7FFFFFFF)
    listing = os.open("/proc/self/fd", os.O_RDONLY | os.O_DIRECTORY)
    left = set(map(int, os.listdir(listing))) - {0, 1, 2, *kept, listing}  # noqa: PTH208 - pathlib is an import
    os.close(listing)
    left = {descriptor for descriptor in left if _is_open(descriptor)}  # the listing's own duplicate is gone by now
    if left:
        raise StepError("descriptors", f"still open: {sorted(left)}")
    say(status, "layer", "descriptors", "0, 1 and 2" + (", and the one that orders come over" if zygote else ""))


def _is_open(descriptor: int) -> bool:
    try:
        os.fstat(descriptor)
    except OSError:
        return False
    return True


def check_what_is_in_force(
    status: int, identity: "tuple[int, int] | None", sets: "tuple[str, ...]" = CAPABILITY_SETS
) -> None:
    """Believe the kernel, not the steps: what it says of this process must be what was asked for."""
    found = status_of("self")
    for name in sets:
        if int(found.get(name, "1"), 16):
            raise StepError("capabilities", f"{name} is {found[name].strip()}")
    if found.get("NoNewPrivs", "").strip() != "1":
        raise StepError("capabilities", "no_new_privs is not set")
    if found.get("Seccomp", "").strip() != "2":
        raise StepError("seccomp", "no filter is in force")
    if identity is not None and set(found["Uid"].split()) != {str(identity[0])}:
        raise StepError("identity", f"the kernel says {found['Uid'].split()}")
    say(status, "layer", "seccomp", "filter in force, no_new_privs set")


def enter(folder: str) -> None:
    """Change to the working directory."""
    try:
        os.chdir(folder)
    except OSError as error:
        raise StepError("working directory", error.strerror or "", folder, error.errno or 0) from error


def become(argv: "tuple[str, ...]", environment: "dict[str, str]") -> "NoReturn":
    """Replace this process. The status pipe closes by itself when it has worked, which is the launcher's sign."""
    name = argv[0]
    places = environment.get("PATH", "/usr/bin:/bin").split(":") if "/" not in name else [""]
    failure = StepError("exec", "not found on PATH", name, 2)
    restore_signals()
    for place in places:
        path = f"{place}/{name}" if place else name
        try:
            os.execve(path, argv, environment)  # noqa: S606 - no shell is the point
        except FileNotFoundError as error:
            if os.path.lexists(path):  # a script whose interpreter is missing, or a binary whose loader is
                failure = StepError("exec", "its interpreter or loader is not inside the sandbox", path, 2)
                break
            if "/" in name:
                failure = StepError("exec", error.strerror or "", path, error.errno or 0)
        except OSError as error:
            failure = StepError("exec", error.strerror or "", path, error.errno or 0)
            break
    raise failure


def _prepare_zygote(config: "dict[str, Any]") -> "Any":  # noqa: ANN401 - a type of a module that few starts have
    if not config["zygote"]:
        return None
    from fumehood_sandbox.fork.zygote import Zygote  # noqa: PLC0415 - handed over only where it is wanted

    return Zygote(config["zygote"])


def prepare_module(config: "dict[str, Any]") -> "tuple[CodeType, dict[str, Any]]":
    """Make this interpreter look as `python -m module` would, without the imports that runpy costs."""
    import _frozen_importlib_external  # noqa: PLC0415 - what importlib.machinery, which imports much, is made of

    os.environ.clear()
    os.environ.update(config["environment"])
    time.tzset()
    name: str = config["module"]
    sys.path[:0] = config["path"]
    find_spec = _frozen_importlib_external.PathFinder.find_spec
    try:
        package, _, _ = name.rpartition(".")
        search = None
        if package:
            __import__(package)
            search = sys.modules[package].__path__
        spec = find_spec(name, search)
        if spec is not None and spec.submodule_search_locations is not None:
            __import__(name)
            package, search = name, sys.modules[name].__path__
            name += ".__main__"
            spec = find_spec(name, search)
        loader = spec and spec.loader
        code = loader.get_code(name) if spec and loader and hasattr(loader, "get_code") else None
    except Exception as error:
        raise StepError("module", f"{type(error).__name__}: {error}", name) from error
    if spec is None or code is None:
        raise StepError("module", "no such module with Python code on the given path", name)
    main_module = type(sys)("__main__")
    main_module.__dict__.update(
        __spec__=spec,
        __loader__=spec.loader,
        __file__=spec.origin,
        __cached__=None,
        __package__=package,
        __builtins__=__builtins__,
    )
    sys.modules["__main__"] = main_module
    sys.argv = [spec.origin or name, *config["argv"]]
    sys.orig_argv[:] = [sys.executable, "-I", "-S", "-m", config["module"], *config["argv"]]
    return code, main_module.__dict__

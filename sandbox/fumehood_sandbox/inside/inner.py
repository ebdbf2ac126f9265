"""The inner stage: runs inside the namespaces, applies the last layers to itself, and becomes the program.

`launch` hands the code of this file and of those beside it to `python -I -S` over a descriptor; nothing of the package
can be imported here, and each import costs every start, so they take only what the interpreter has loaded anyway,
`kernel` and `resource`. Read `main` for the order. The first step that fails is reported and ends the process.
"""

import os
import sys
import time

from fumehood_sandbox.inside.layers import (
    allow_connecting,
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
from fumehood_sandbox.inside.relay import open_relay, proxy_variables
from fumehood_sandbox.inside.report import fail, report
from fumehood_sandbox.inside.scratch import limit_inodes
from fumehood_sandbox.inside.speculation import limit_speculation
from fumehood_sandbox.kernel.libc import StepError

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

_POLL_INTERVAL_S = 0.001
_MOST_POLLS = 5000
"""Pid 1 is ready long before this stage, as a rule; on a machine where it takes 5 s, no start succeeds."""


def main(config: "dict[str, Any]", make_modules: "Callable[[dict[str, Any]], dict[str, Any]] | None" = None) -> None:
    """Apply every layer and become the program. Comes back only by the exit of a `PythonModule`.

    `make_modules` makes what such a module can import beside its own; see the stage of a zygote.
    """
    status: int = config["status_fd"]
    try:
        os.dup2(config["stdout_fd"], 1)
        ruleset = make_ruleset(config["landlock"])
        if config["relay_fd"] is not None:
            port = open_relay(status, config["relay_fd"])
            allow_connecting(ruleset, config["landlock"]["attributes"], port)
            config["environment"] |= proxy_variables(port)
        limit_inodes(status, config["scratch"])
        limit_speculation(status)
        limit(status, config["rlimits"])
        empty_bounding_set()
        drop_identity(status, config["identity"])
        load_filter(config["limits_filter"], what="keep the limits")
        drop_capabilities(status)
        restrict_self(status, ruleset, config["landlock"]["detail"])
        close_descriptors(status, config["kept_fds"])
        check_status(status, config["identity"])
        enter(config["working_directory"])
        if config["executable"]:
            _report_ready(status)
            become(config["executable"], config["environment"])
        code, module = prepare_module(config)
        modules = make_modules(config) if make_modules is not None else {}
        _report_ready(status)
        os.close(status)
    except StepError as error:
        fail(status, *error.fields)
    except BaseException as error:  # noqa: BLE001 - whatever it is, the launcher must hear of it
        fail(status, "inner", f"{type(error).__name__}: {error}", "", str(getattr(error, "errno", 0) or 0))
    del status, ruleset, config
    forget_stages()
    sys.modules.update(modules)
    del modules, make_modules
    exec(code, module)  # noqa: S102 - the module that the caller asked for


def _report_ready(status: int) -> None:
    """Report that the program is about to run, once it is sure that it dies with the launcher.

    Pid 1 asks to be killed at bubblewrap's death only late in its own start, and in vain when bubblewrap is dead by
    then. It asks before it loads the filter: so wait until that shows, and then write to the launcher. If that works,
    both were alive when pid 1 had asked; if it doesn't, the exception ends this process, and pid 1 ends with it.
    """
    for _ in range(_MOST_POLLS):
        if status_of("1").get("Seccomp", "").strip() == "2":
            report(status, "ready")
            return
        time.sleep(_POLL_INTERVAL_S)
    raise StepError("seccomp", "pid 1 of the namespace runs without the filter")

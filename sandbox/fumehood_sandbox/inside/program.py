"""The exec: how a stage becomes the program. Working directory, execve(2), or a Python module in this interpreter."""

import os
import sys
import time

from fumehood_sandbox.kernel.libc import StepError, restore_signals

TYPE_CHECKING = False
if TYPE_CHECKING:
    from types import CodeType
    from typing import Any, NoReturn


def enter(folder: str) -> None:
    """Change to the working directory."""
    try:
        os.chdir(folder)
    except OSError as error:
        raise StepError("working directory", error.strerror or "", folder, error.errno or 0) from error


def become(argv: "tuple[str, ...]", environment: "dict[str, str]") -> "NoReturn":
    """Replace this process. The status pipe closes by itself when it has worked, which is the launcher's sign."""
    name = argv[0]
    folders = environment.get("PATH", "/usr/bin:/bin").split(":") if "/" not in name else [""]
    failure = StepError("exec", "not found on PATH", name, 2)
    restore_signals()
    for folder in folders:
        path = f"{folder}/{name}" if folder else name
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


def forget_stages() -> None:
    """Leave nothing of the package where the program could import it."""
    for name in [name for name in sys.modules if name.partition(".")[0] == "fumehood_sandbox"]:
        del sys.modules[name]

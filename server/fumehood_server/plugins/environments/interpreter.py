"""The interpreter and platform that packages are installed for: that of the sidecar, which plugins run in as well."""

from __future__ import annotations

import platform
import sys
import sysconfig

TAG = str(sysconfig.get_config_var("SOABI") or f"{sys.implementation.cache_tag}-{sysconfig.get_platform()}")
"""Implementation, version, architecture and libc (PEP 3149), such as "cpython-311-x86_64-linux-gnu"."""

PLATFORM = sysconfig.get_platform()
"""What programs are built for, such as "linux-x86_64"."""

DESCRIPTION = f"{platform.python_implementation()} {sys.version_info.major}.{sys.version_info.minor} ({TAG})"
"""The same for people."""

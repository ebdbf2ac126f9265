"""Control groups: a leaf for each sandbox, made where the kernel lets this process make one."""

from fumehood_sandbox.cgroup.discovery import cgroups
from fumehood_sandbox.cgroup.joining_thread import JoiningThread
from fumehood_sandbox.cgroup.leaf import Leaf
from fumehood_sandbox.cgroup.leaves import BOUNDING, NONE, Cgroups
from fumehood_sandbox.cgroup.version import Control

__all__ = ["BOUNDING", "NONE", "Cgroups", "Control", "JoiningThread", "Leaf", "cgroups"]

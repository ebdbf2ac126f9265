"""Control groups: a leaf for each sandbox, made where the kernel lets this process make one."""

from fumehood_sandbox.cgroup.leaf import Leaf
from fumehood_sandbox.cgroup.mechanism import Control
from fumehood_sandbox.cgroup.parents import BOUNDING, NONE, Cgroups, cgroups

__all__ = ["BOUNDING", "NONE", "Cgroups", "Control", "Leaf", "cgroups"]

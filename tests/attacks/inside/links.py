"""Ways out of a grant: links, `..`, renames, other names for the root."""

from __future__ import annotations

import os

from tests.attacks.inside.kit import READING, WRITING, Arena, Pair, attack, outcome, read_file, write_file

OUT_OF_REACH = ("ENOENT", "EACCES", "EPERM", "EROFS")


@attack("S104", "ENOENT")
def symlink_out_of_a_grant(arena: Arena) -> Pair:
    os.symlink(f"{arena.outside}/canary", f"{arena.own}/link")
    write_file(f"{arena.own}/target")
    os.symlink(f"{arena.own}/target", f"{arena.own}/good")
    return outcome(lambda: read_file(f"{arena.own}/link")), outcome(lambda: read_file(f"{arena.own}/good"))


@attack("S104", "ENOENT")
def write_through_a_symlink_out_of_a_grant(arena: Arena) -> Pair:
    os.symlink(f"{arena.outside}/planted", f"{arena.own}/planting")
    os.symlink(f"{arena.own}/planted", f"{arena.own}/good2")
    return outcome(lambda: write_file(f"{arena.own}/planting")), outcome(lambda: write_file(f"{arena.own}/good2"))


@attack("S104", "ENOENT", levels=READING)
def follow_a_symlink_that_lay_in_a_grant(arena: Arena) -> Pair:
    """Somebody else left it there; it leads outside, where it leads to nothing for the program."""
    assert os.path.islink(f"{arena.read}/out")
    return outcome(lambda: read_file(f"{arena.read}/out")), outcome(lambda: read_file(f"{arena.read}/in"))


@attack("S104", "ENOENT", "EACCES")
def dotdot_out_of_a_grant(arena: Arena) -> Pair:
    granted = arena.read or arena.own
    name = os.path.basename(arena.outside)
    attempts = [f"{granted}/../{name}/canary", f"{granted}/../../../../../../../..{arena.outside}/canary"]
    found = {outcome(lambda path=path: read_file(path)) for path in attempts}
    os.chdir(granted)
    found.add(outcome(lambda: read_file(f"../{name}/canary")))
    return found.pop() if len(found) == 1 else str(found), outcome(lambda: os.listdir("../" * 20))


@attack("S104", "ENOENT", "EACCES")
def dotdot_by_descriptor(arena: Arena) -> Pair:
    granted = os.open(arena.read or arena.own, os.O_PATH | os.O_DIRECTORY)
    name = os.path.basename(arena.outside)
    found = outcome(lambda: os.open(f"../{name}/canary", os.O_RDONLY, dir_fd=granted))
    return found, outcome(lambda: os.open(".", os.O_RDONLY | os.O_DIRECTORY, dir_fd=granted))


@attack("S104", "EXDEV", "EROFS", "EACCES", "EPERM", "ENOENT")
def hard_link_into_a_writable_folder(arena: Arena) -> Pair:
    """A second name of a file that may only be read, at a place where files may be written."""
    victim = f"{arena.read}/file" if arena.read else os.__file__
    write_file(f"{arena.own}/original")
    found = outcome(lambda: os.link(victim, f"{arena.own}/second"))
    return found, outcome(lambda: os.link(f"{arena.own}/original", f"{arena.own}/linked"))


@attack("S104", "EXDEV", "EPERM", "ENOENT", "EROFS", "EACCES")
def hard_link_by_descriptor(arena: Arena) -> Pair:
    victim = os.open(f"{arena.read}/file" if arena.read else os.__file__, os.O_RDONLY)
    write_file(f"{arena.own}/original3")
    path = f"/proc/self/fd/{victim}"
    found = outcome(lambda: os.link(path, f"{arena.own}/third", follow_symlinks=True))
    return found, outcome(lambda: os.link(f"{arena.own}/original3", f"{arena.own}/linked3"))


@attack("S104", "EXDEV", "EROFS", "EACCES", "ENOENT")
def rename_out_of_a_grant(arena: Arena) -> Pair:
    write_file(f"{arena.own}/moving")
    found = outcome(lambda: os.rename(f"{arena.own}/moving", f"{arena.outside}/planted"))
    return found, outcome(lambda: os.rename(f"{arena.own}/moving", f"{arena.own}/moved"))


@attack("S104", "EXDEV", "EROFS", "EACCES", levels=WRITING)
def rename_from_one_grant_into_another(arena: Arena) -> Pair:
    found = outcome(lambda: os.rename(f"{arena.read}/file", f"{arena.write}/stolen"))
    return found, outcome(lambda: read_file(f"{arena.read}/file"))


@attack("S104", "EBUSY", "EROFS", "EACCES", "EXDEV", levels=WRITING)
def replace_a_grant_itself(arena: Arena) -> Pair:
    """Its folder put aside, and a link in its place, would send the next start elsewhere."""
    found = {
        outcome(lambda: os.rename(arena.write, arena.write + ".aside")),
        outcome(lambda: os.rmdir(arena.write)),
    }
    allowed = {"EBUSY", "EROFS", "EACCES", "EXDEV"}
    return "EROFS" if found <= allowed else str(found), outcome(lambda: os.mkdir(f"{arena.write}/folder"))


@attack("S105", "ENOENT", "EACCES")
def own_root_by_proc(arena: Arena) -> Pair:
    """/proc/self/root and cwd are the sandbox's, and lead nowhere else."""
    found = {outcome(lambda name=name: read_file(f"/proc/{name}{arena.outside}/canary")) for name in _ROOTS}
    return found.pop() if len(found) == 1 else str(found), outcome(lambda: os.listdir("/proc/self/root/proc/self"))


_ROOTS = ("self/root", "thread-self/root", "self/cwd/../../..")


@attack("S105", "ENOENT")
def old_root_of_the_setup(arena: Arena) -> Pair:
    found = {
        outcome(lambda name=name: os.stat(name)) for name in ("/oldroot", "/newroot", "/.oldroot", "/proc/oldroot")
    }
    return found.pop() if len(found) == 1 else str(found), outcome(lambda: os.stat(arena.own))

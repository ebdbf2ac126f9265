"""`make test-kernels`: boot each entry of the matrix in turn, and tell what was not as expected.

Exit status: 0 all as expected, 1 something was not, 2 it could not be tried, for want of images (0 with --if-possible).
"""

from __future__ import annotations

import argparse
import sys
import time

from tools.kernels.checkout_image import checkout_image
from tools.kernels.machine import boot
from tools.kernels.matrix import BY_NAME, ENTRIES, FULL, NONE, SHORT, Entry
from tools.kernels.places import KernelsError
from tools.kernels.results import EntryResult
from tools.kernels.root_image import root_image
from tools.kernels.table import write_tables


def main() -> int:
    """Parse the command line and run what it names."""
    parser = argparse.ArgumentParser(prog="make test-kernels", description=__doc__)
    parser.add_argument("names", nargs="*", metavar="ENTRY", help=", ".join(BY_NAME))
    parser.add_argument(
        "--write-table", action="store_true", help="write the last results of all into the documentation"
    )
    extent = parser.add_mutually_exclusive_group()
    extent.add_argument("--full", action="store_const", dest="tests", const=FULL, help="hours in place of minutes")
    extent.add_argument("--doctor-only", action="store_const", dest="tests", const=NONE, help="run no tests")
    extent.add_argument("--tests", metavar="FILE,FILE::TEST", help="run these")
    parser.add_argument("--if-possible", action="store_true", help="not to be able to make the images is no failure")
    parser.set_defaults(tests=SHORT)
    options = parser.parse_args()
    if unknown := set(options.names) - set(BY_NAME):
        parser.error(f"no such entry: {', '.join(sorted(unknown))}; there are {', '.join(BY_NAME)}")
    if options.write_table:
        write_tables()
        return 0
    entries = [BY_NAME[name] for name in options.names] or list(ENTRIES)
    try:
        failed = [entry.name for entry in entries if not _as_expected(entry.given(options.tests), options.tests)]
    except KernelsError as error:
        print(f"kernels: {'SKIPPED: ' if options.if_possible else ''}{error}", file=sys.stderr)
        return 0 if options.if_possible else 2
    if failed:
        print(f"kernels: not as expected: {', '.join(failed)}", file=sys.stderr)
    return 1 if failed else 0


def _as_expected(entry: Entry, tests: str) -> bool:
    root, checkout = root_image(entry.architecture), checkout_image(entry.architecture)
    begun, result = time.monotonic(), EntryResult(entry.name, tests)
    print(f"kernels: {entry.name}: {entry.about}", flush=True)
    try:
        for line in boot(entry, root, checkout, tests):
            if progress := result.take(line):
                result.keep()
                print(f"  {time.monotonic() - begun:5.0f} s  {progress}", flush=True)
    except KernelsError as error:
        result.problems.append(str(error))
    finally:
        result.keep()
    problems = result.judge(entry)
    for problem in problems:
        print(f"  NOT AS EXPECTED: {problem}", flush=True)
    for run in result.runs:
        counts = ", ".join(f"{count} {outcome}" for outcome, count in sorted(run.counts.items()))
        print(f"  {time.monotonic() - begun:5.0f} s  {run.name}: {run.backend}; {counts or 'no tests'}", flush=True)
    return not problems


if __name__ == "__main__":
    sys.exit(main())

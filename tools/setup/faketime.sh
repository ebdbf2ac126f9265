#!/usr/bin/env bash
# Sees to libfaketime, by which tests set the clock of a sidecar. Without the right to install it, those tests are skipped.
set -euo pipefail
cd "$(dirname "$0")/../.."
installed() { compgen -G '/usr/lib/*/faketime/libfaketimeMT.so.1' >/dev/null; }
installed || tools/setup/apt.sh libfaketime || echo "setup: no libfaketime and no right to install it; its tests are skipped" >&2

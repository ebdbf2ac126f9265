#!/usr/bin/env bash
# Sees to what boots other kernels: qemu, and what makes their root file systems.
set -euo pipefail
cd "$(dirname "$0")/../.."
for command in qemu-system-x86_64 qemu-system-aarch64 mmdebstrap mke2fs; do
    command -v "$command" >/dev/null && continue
    tools/setup/apt.sh qemu-system-x86 qemu-system-arm mmdebstrap e2fsprogs && exit
    echo "setup: no $command, and no right to install it" >&2
    exit 1
done

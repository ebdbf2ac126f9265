#!/usr/bin/env bash
# Sees to podman and what it runs containers with, and to what makes their image.
set -euo pipefail
cd "$(dirname "$0")/../.."
for command in podman runc mmdebstrap; do
    command -v "$command" >/dev/null && continue
    tools/setup/apt.sh podman runc crun uidmap slirp4netns netavark iptables mmdebstrap && exit
    echo "setup: no $command, and no right to install it" >&2
    exit 1
done

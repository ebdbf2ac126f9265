#!/usr/bin/env bash
# Installs Debian packages where it may without asking: as root, or by a sudo that wants no password. Else exits 1, silently.
set -euo pipefail
command -v apt-get >/dev/null || exit 1
as_root=()
if [ "$(id -u)" -ne 0 ]; then
    sudo -n true >/dev/null 2>&1 || exit 1
    as_root=(sudo -n)
fi
export DEBIAN_FRONTEND=noninteractive
echo "setup: apt-get install $*"
install() { "${as_root[@]}" env DEBIAN_FRONTEND=noninteractive apt-get install -qq -y --no-install-recommends "$@" >/dev/null; }
# Lists that are missing or old make the first try fail.
install "$@" 2>/dev/null || { "${as_root[@]}" apt-get update -qq >/dev/null && install "$@"; }

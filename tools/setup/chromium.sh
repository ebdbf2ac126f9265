#!/usr/bin/env bash
# Sees to Debian's Chromium without a display, which Playwright's MCP server drives in tests. Without the right to
# install it, and where there is no such package, those tests are skipped.
set -euo pipefail
cd "$(dirname "$0")/../.."
installed() { [ -x /usr/lib/chromium/chromium-headless-shell ]; }
installed && exit
if tools/setup/apt.sh chromium-headless-shell && installed; then
    echo "setup: Chromium is $(dpkg-query --show --showformat '${Version}' chromium-headless-shell)"
else
    echo "setup: no Debian chromium-headless-shell, or no right to install it; its tests are skipped" >&2
fi

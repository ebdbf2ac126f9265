#!/usr/bin/env bash
# Sees to a PostgreSQL server for the tests, which start one of their own in a temporary folder. Without the right to install
# one, those tests are skipped.
set -euo pipefail
cd "$(dirname "$0")/../.."
installed() { compgen -G '/usr/lib/postgresql/*/bin/initdb' >/dev/null; }
installed && exit
# Debian's package would make a cluster of its own and start it.
as_root=()
[ "$(id -u)" -eq 0 ] || as_root=(sudo -n)
settings=/etc/postgresql-common/createcluster.conf
[ -e "$settings" ] || "${as_root[@]}" sh -c "mkdir -p ${settings%/*} && echo 'create_main_cluster = false' >$settings" 2>/dev/null || true
if tools/setup/apt.sh postgresql && installed; then
    echo "setup: PostgreSQL is $(/usr/lib/postgresql/*/bin/postgres --version | tail -n 1)"
else
    echo "setup: no PostgreSQL server and no right to install it; its tests are skipped" >&2
fi

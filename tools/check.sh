#!/usr/bin/env bash
# Everything a reviewer needs, in the order that fails fastest; ends by naming every check that could not run here.
set -euo pipefail
cd "$(dirname "$0")/.."
bin=$PWD/.venv/bin
node_bin=$PWD/.venv/node
mkdir -p .build && : >.build/not_run.txt
step() { printf '== %s\n' "$1"; }

if ! command -v chromium >/dev/null && [ "$(id -u)" = 0 ]; then
  step "installing chromium for the browser tests"
  apt-get update -qq && DEBIAN_FRONTEND=noninteractive apt-get install -y -qq chromium fonts-dejavu-core >/dev/null
fi
if ! command -v cc >/dev/null && [ "$(id -u)" = 0 ]; then
  step "installing a C compiler for the stub of NVML"
  apt-get update -qq && DEBIAN_FRONTEND=noninteractive apt-get install -y -qq gcc libc6-dev >/dev/null
fi
if ! command -v systemd-analyze >/dev/null && [ "$(id -u)" = 0 ]; then
  step "installing systemd to check the agent's unit"
  apt-get update -qq && DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends systemd >/dev/null
fi
if ! { command -v prometheus && command -v vmagent; } >/dev/null && [ "$(id -u)" = 0 ]; then
  step "installing prometheus and vmagent, which the tests have write to a gateway"
  apt-get update -qq && DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends prometheus victoria-metrics >/dev/null
fi
if ! ls /usr/lib/postgresql/*/bin/postgres >/dev/null 2>&1 && [ "$(id -u)" = 0 ]; then
  step "installing postgresql, which the tests keep metadata in"
  apt-get update -qq && DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends postgresql >/dev/null
fi
step "servers for the tests" && bash tools/kafka.sh
step format && "$bin/ruff" format --check --quiet src tests bench tools
step lint && "$bin/ruff" check --quiet src tests bench tools
step types && "$bin/mypy"
step "import rules" && "$bin/lint-imports" --no-cache
step "pages: format, lint, types, unit tests" && (cd web && PATH="$node_bin:$PATH" npm run --silent check && PATH="$node_bin:$PATH" npm test --silent)
step tests
tests=("$bin/pytest" tests -m "not soak" --not-run-file=.build/not_run.txt)
again=.build/only_alone.txt && : >"$again"
if ! "${tests[@]}" -n 3 --dist loadfile --no-loadscope-reorder --durations=15; then
  step "what failed, once more and alone; what fails twice is red"
  "${tests[@]}" --last-failed --last-failed-no-failures none -rp | tee "$again"
fi
if grep -q ^PASSED "$again"; then
  printf '\nfailed beside other tests and passed alone, to be looked at:\n' && sed -n 's/^PASSED /  - /p' "$again"
fi
if [ -s .build/not_run.txt ]; then
  printf '\nnot run on this machine:\n' && sort -u .build/not_run.txt | sed 's/^/  - /'
else
  printf '\nevery check ran on this machine\n'
fi

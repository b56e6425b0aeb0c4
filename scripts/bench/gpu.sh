#!/usr/bin/env bash
# Measures localeval on an NVIDIA GPU, on a machine that needs no network, and writes one JSON.
#
#   scripts/bench/gpu.sh --collect WHEELS                     where there is a network: fills a folder of wheels
#   scripts/bench/gpu.sh WHEELS MODEL DATASET_DIR OUT.json    on the machine with the GPU: installs, measures
#
# MODEL is a folder of weights, DATASET_DIR holds milu/ and conllpp/ as the README says. WHEELS holds what
# scripts/requirements/gpu.txt pins. Where it has no torch, the machine's own is used, which must be the one that the
# vLLM among the wheels was built for; then what the machine has already is not installed again. OUT.json is written
# after each part, in the order of what matters most; PARTS="floor prefill" leaves parts out (floor starts 6 engines,
# prefill 1, graphs 2, speculation 4), MCQ, NER and ROUNDS change the sizes. Needs Python 3.11 to 3.13 of the kind that
# the wheels are for: PYTHON names it.
set -euo pipefail
here=$(cd "$(dirname "$0")/../.." && pwd)
python=${PYTHON:-python3}

usage() { sed -n '2,6p' "$0" >&2; exit 2; }

if [ "${1:-}" = --collect ]; then
    [ $# = 2 ] || usage
    "$python" -m pip download --disable-pip-version-check --only-binary=:all: --dest "$2" \
        --requirement "$here/scripts/requirements/gpu.txt"
    "$python" -m pip download --disable-pip-version-check --only-binary=:all: --dest "$2" hatchling
    exit 0
fi
[ $# = 4 ] || usage
wheels=$(cd "$1" && pwd) model=$(cd "$2" && pwd) data=$(cd "$3" && pwd) out=$4
nvidia-smi -L >&2 || { echo "gpu.sh: no NVIDIA driver answers here" >&2; exit 2; }

venv=$(mktemp -d)/venv
trap 'rm -rf "$(dirname "$venv")"' EXIT
if compgen -G "$wheels/torch-*.whl" >/dev/null; then
    "$python" -m venv "$venv"
    "$venv/bin/python" -m pip install --quiet --no-index --find-links "$wheels" \
        --requirement "$here/scripts/requirements/gpu.txt"
    "$venv/bin/python" -m pip install --quiet --no-index --find-links "$wheels" hatchling
else
    "$python" -m venv --system-site-packages "$venv"
    "$venv/bin/python" -m pip install --quiet --no-index --no-deps "$wheels"/*.whl
fi
"$venv/bin/python" -m pip install --quiet --no-index --no-deps --no-build-isolation "$here"
"$venv/bin/python" - <<'PY' >&2
import torch, vllm
assert torch.cuda.is_available(), "torch sees no GPU: it was built for another driver"
print(f"vLLM {vllm.__version__}, torch {torch.__version__}, {torch.cuda.get_device_name(0)}")
PY
"$venv/bin/python" "$here/scripts/bench/engine.py" --model "$model" --dataset-dir "$data" \
    --mcq "${MCQ:-2000}" --ner "${NER:-400}" --drafted 16 64 256 --max-tokens 128 --rounds "${ROUNDS:-2}" \
    --only ${PARTS:-floor prefill graphs speculation} --json "$out"

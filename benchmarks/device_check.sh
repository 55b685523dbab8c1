#!/usr/bin/env bash
# All that is to be known of a GPU, in one go of at most 8 minutes, from wheels that were built elsewhere:
#
#     benchmarks/device_check.sh FOLDER_OF_WHEELS FOLDER_OF_RESULTS
#
# The machine needs NVIDIA's driver, and a Python (or PYTHON=...) with PyTorch, numpy, click, rich, safetensors, jinja2,
# pytest, pytest-timeout and hypothesis; nothing is fetched. DEVICE=cpu tries the script itself where there is no GPU.
set -uo pipefail
[[ $# -eq 2 ]] || { sed -n '2,7s/^# \?//p' "$0"; exit 2; }
wheels=$(realpath "$1")
mkdir -p "$2" || exit 2
results=$(realpath "$2")
python=${PYTHON:-python3}
device=${DEVICE:-cuda:0}
cd "$(dirname "$0")/.."

site=$(mktemp -d)
trap 'rm -rf "$site"' EXIT
export PYTHONPATH=$site MAMBA2_BRIDGE_BACKEND=${device%%:*}
ended=0
table=()

# check NAME SECONDS COMMAND...: runs it with its output in a file, and notes how it ended.
check() {
    local name=$1 limit=$2 begun=$SECONDS said
    shift 2
    echo "+ $*"
    timeout --kill-after=5 "$limit" "$@" >"$results/$name.txt" 2>&1
    case $? in
        0) said=passed ;;
        124 | 137) said="over $limit s" ended=1 ;;
        *) said=FAILED ended=1 ;;
    esac
    table+=("$(printf '%-8s %-12s %4d s  %s' "$name" "$said" $((SECONDS - begun)) "$(tail -n 1 "$results/$name.txt" | cut -c 1-80)")")
}

check install 40 "$python" -m pip install --quiet --no-index --no-deps --no-compile --target "$site" "$wheels"/mamba2_bridge*.whl
check doctor 40 "$python" -m mamba2_bridge.cli doctor
check tests 180 "$python" -m pytest -q -m cuda --device "$device" -o cache_dir="$site/.pytest" tests/cuda
check parity 110 "$python" -m mamba2_bridge.cli parity --quick --device "$device" --out "$results/parity"
check bench 100 "$python" -m benchmarks run --device "$device" --rounds 3 --name device \
    --contenders ours,twin,tuned,hf \
    --works forward-2048,forward+backward-2048,forward+backward-2048-fp64,small-forward+backward,step
mv benchmarks/results/device.json "$results/bench.json"

grep -m 1 -A 8 'milliseconds' "$results/bench.txt"
printf '%s\n' "${table[@]}"
exit "$ended"

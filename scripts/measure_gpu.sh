#!/usr/bin/env bash
# Measures the verifier on a machine with a GPU, for docs/verification.md. Stops and goes on: each step
# begins nothing new after its seconds, and skips what its JSON lines already have.
#
#   DATA=/path [OUT=out] [PYTHON=python3] [SECONDS_PER_STEP=240] scripts/measure_gpu.sh [STEP ...]
#
# DATA holds KernelBench (a checkout, for evaluators), dataset (the one that the runs were made of) and
# runs. OUT gets the JSON lines; copy earlier ones there to go on with them. Steps, in order: sandbox
# faults correctness evaluators evaluators-compile timed timing.
set -u
cd "$(dirname "$0")/.."
: "${DATA:?set DATA to the folder with KernelBench, dataset and runs}"
OUT=${OUT:-out}
PYTHON=${PYTHON:-python3}
LIMIT=${SECONDS_PER_STEP:-240}
BACKEND=${BACKEND:-cuda}
mkdir -p "$OUT"
export PYTHONPATH="$PWD:$PWD/inference:$PWD/verifier${PYTHONPATH:+:$PYTHONPATH}"
musacoder() { "$PYTHON" -m musacoder_lsp.cli.main "$@"; }
runs=()
for run in "$DATA"/runs/*/eval_results.json; do
  [ -f "$run" ] && runs+=(--run "$(dirname "$run")")
done
common=(--backend "$BACKEND" --python "$PYTHON" --seconds "$LIMIT")

step() {
  case $1 in
    sandbox) musacoder doctor --python "$PYTHON" --json > "$OUT/doctor.json" ;;
    faults) musacoder bench faults "${common[@]}" --repetitions 5 --lines "$OUT/faults.jsonl" ;;
    correctness)
      musacoder bench kernelbench "$DATA/dataset" "${runs[@]}" "${common[@]}" --like kernelbench \
        --tolerance 0.01 --no-timing --device-slots "${SLOTS:-3}" --lines "$OUT/like.jsonl" ;;
    timed)
      musacoder bench kernelbench "$DATA/dataset" "${runs[@]}" "${common[@]}" --timing-sample 60 \
        --seed 1 --lines "$OUT/timed.jsonl" ;;
    evaluators)
      musacoder bench evaluators --kernelbench "$DATA/KernelBench" --runs "$DATA/runs" \
        "${common[@]}" --lines "$OUT/evaluators.jsonl" ;;
    evaluators-compile)
      musacoder bench evaluators --kernelbench "$DATA/KernelBench" --runs "$DATA/runs" \
        "${common[@]}" --compile-only --lines "$OUT/evaluators.jsonl" ;;
    timing)
      timeout "$LIMIT" "$PYTHON" -m musacoder_lsp.cli.main bench timing --backend "$BACKEND" \
        --python "$PYTHON" --json > "$OUT/timing.json" ;;
    *) echo "there is no step $1" >&2; return 2 ;;
  esac
}

[ $# -gt 0 ] || set -- sandbox faults correctness evaluators evaluators-compile timed timing
for name in "$@"; do
  begun=$SECONDS
  step "$name" > "$OUT/$name.txt" 2> "$OUT/$name.log"
  echo "$name: exit $? after $((SECONDS - begun)) s; $(tail -n 1 "$OUT/$name.log" | cut -c1-160)"
done

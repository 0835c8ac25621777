#!/usr/bin/env bash
# tests/fuzz/libfuzzer.sh [SECONDS [NAME...]]: builds the entry functions with clang's libFuzzer,
# AddressSanitizer and UndefinedBehaviorSanitizer and runs each for so long. The corpus is kept
# below .assay/fuzz/NAME, what was found lies there as crash-*. Exit 1 if there was anything.
set -euo pipefail

root=$(cd "$(dirname "$(readlink -f "${BASH_SOURCE[0]}")")/../.." && pwd)
seconds=${1:-60}
shift || true
work="${ASSAY_FUZZ_DIR:-$root/.assay/fuzz}"
declare -A entries=(
  [safetensors]=FuzzSafetensors [gguf]=FuzzGguf [config]=FuzzConfig [problem]=FuzzProblem
  [results]=FuzzResults [describe]=FuzzDescribe [matrix]=FuzzMatrix
  [audit]=FuzzAudit)
names=("$@")
[ ${#names[@]} != 0 ] || names=(safetensors gguf config problem results describe matrix audit)
command -v clang++ >/dev/null || { echo "libfuzzer.sh: install clang" >&2; exit 2; }
for name in "${names[@]}"; do
  [ -n "${entries[$name]:-}" ] ||
    { echo "libfuzzer.sh: no input $name; there are ${!entries[*]}" >&2; exit 2; }
done

cd "$root"
mkdir -p "$work/obj"
sources=$(ls harness/units/*.cc harness/checkpoint/*.cc harness/store/*.cc harness/run/problem.cc \
  harness/run/problem_keys.cc harness/run/matrix.cc harness/abi/contract*.cc \
  harness/abi/describe.cc harness/abi/json_reading.cc harness/audit/*.cc harness/shard/*.cc \
  harness/shard/methods/*.cc reports/html_style.cc reports/text.cc tests/fuzz/*_entr*.cc tests/fuzz/require.cc \
  tests/fuzz/seeds.cc | grep -v -E '_test\.cc|_main\.cc|test_support|test_model|engine_shards|k2_layer|gguf_writer|gguf_conversion')
flags="-std=c++20 -O1 -g1 -ffp-contract=off -UNDEBUG -fno-omit-frame-pointer -I$root
  -fsanitize=address,undefined -fno-sanitize-recover=all"
objects=()
for source in $sources; do
  object="$work/obj/${source//\//_}.o"
  objects+=("$object")
  if [ ! -e "$object" ] || [ -n "$(find harness tests/fuzz -name '*.h' -newer "$object" -print -quit)" ] ||
    [ "$source" -nt "$object" ]; then
    # shellcheck disable=SC2086
    clang++ $flags -fsanitize=fuzzer-no-link -c "$source" -o "$object"
  fi
done

found=0
for name in "${names[@]}"; do
  mkdir -p "$work/$name"
  # The matrix' reader comes with calls of the whole harness, which it does not make: for that one
  # input they stay open.
  parts=() open=()
  for object in "${objects[@]}"; do
    [ "$name" = matrix ] || [[ "$object" != *matrix* ]] && parts+=("$object")
  done
  [ "$name" != matrix ] || open=(-no-pie -Wl,--unresolved-symbols=ignore-all)
  # shellcheck disable=SC2086
  clang++ $flags -fsanitize=fuzzer -DASSAY_FUZZ_ENTRY="${entries[$name]}" tests/fuzz/libfuzzer.cc \
    "${parts[@]}" -o "$work/fuzz_$name" "${open[@]}" -lfmt -lxxhash -lpthread
  if "$work/fuzz_$name" --seeds "$name" "$work/$name" -max_total_time="$seconds" -max_len=4096 \
    -timeout=10 -rss_limit_mb=2048 -print_final_stats=1 -artifact_prefix="$work/$name/" \
    "$work/$name" >"$work/$name.log" 2>&1; then
    verdict="nothing found"
  else
    verdict="FOUND: $work/$name.log"
    found=1
  fi
  runs=$(sed -n 's/^stat::number_of_executed_units: *//p' "$work/$name.log")
  echo "$name: ${runs:-?} runs in $seconds s, $verdict"
done
exit $found

#!/usr/bin/env bash
# Asks Bazel itself whether the walls stand: packages that would lie in reference/ and kernels/ and
# depend on each other must be refused in analysis, and their legal neighbours must not. The
# packages are read from overlay/ through --package_path, so the tree itself stays clean.
set -euo pipefail
cd "$(dirname "$(readlink -f "${BASH_SOURCE[0]}")")/../.."

analyse() {
  bazel build --nobuild --color=no --noshow_progress \
    --package_path=%workspace%:%workspace%/tests/walls/overlay "$1" 2>&1
}

failed=0
refused() { # TARGET DEPENDENCY
  local output
  if output=$(analyse "$1"); then
    echo "walls: $1 may depend on $2, which must not be visible to it"
    failed=1
  elif ! grep -q "'$2' is not visible from target '$1'" <<<"$output"; then
    printf 'walls: %s failed for another reason than visibility:\n%s\n' "$1" "$output"
    failed=1
  fi
}
allowed() { # TARGET
  local output
  if ! output=$(analyse "$1"); then
    printf 'walls: %s must be allowed:\n%s\n' "$1" "$output"
    failed=1
  fi
}

refused //reference/forbidden:sees_kernels //kernels:registry_h
refused //kernels/forbidden:sees_reference //reference:oracle
allowed //reference/forbidden:sees_its_own
allowed //kernels/forbidden:sees_its_own

[ "$failed" = 0 ] && echo "walls: reference/ and kernels/ cannot see each other"
exit "$failed"

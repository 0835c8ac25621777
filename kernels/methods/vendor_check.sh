#!/bin/sh
# vendor_check.sh VENDOR_WRITE VENDOR_CHECK_PY: what Pack writes, read by the producers' libraries.
# Needs python3 with numpy, ml_dtypes, gguf, safetensors, compressed-tensors and torch; PYTHON names
# another interpreter.
set -eu
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
"$1" "$folder"
"${PYTHON:-python3}" "$2" "$folder"

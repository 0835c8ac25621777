#!/usr/bin/env bash
# Runs one slice of the matrix; the program writes the test's XML report itself.
exec harness/cli/slice "$@"

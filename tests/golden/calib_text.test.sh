#!/bin/sh
# The calibration text passes its lint, and the lint notices an altered file and a repeated one.
set -eu
lint=tests/lint/calib_text.py
python3 $lint calib_data
t=$(mktemp -d)
trap 'rm -rf "$t"' EXIT
mkdir "$t/a"
cp calib_data/*.txt calib_data/MANIFEST.tsv "$t/a"
python3 $lint --update "$t/a" > /dev/null
set -- "$t/a"/*.txt
echo 'one more line' >> "$1"
! python3 $lint "$t/a" > /dev/null || { echo "calib_text: an altered file went unnoticed"; exit 1; }
cat calib_data/*.txt > "$t/a/twice.txt"
! python3 $lint --update "$t/a" > /dev/null || { echo "calib_text: repeated text went unnoticed"; exit 1; }

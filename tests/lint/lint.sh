#!/bin/sh
# clang-tidy on every source, shellcheck on every script, mandoc on every page.
set -eu
bad=0
find tests packaging .ci -name '*.sh' -exec shellcheck -s sh {} + || bad=1
shellcheck .ci/run || bad=1
for m in docs/man/*.[15]; do
    mandoc -T lint -W warning "$m" || bad=1
done
flags="-std=c11 -D_GNU_SOURCE -DPCRE2_CODE_UNIT_WIDTH=8 -I. -Ibuild/release/gen -fopenmp"
find common format convert quantize runner cli -name '*.c' | sort | while read -r f; do
    case $f in
    *_avx2.c) isa='-mavx2 -mfma -mf16c' ;;
    *_avx512.c) isa='-mavx2 -mfma -mf16c -mavx512f -mavx512bw -mavx512vl -mavx512dq -mavx512vnni' ;;
    *) isa= ;;
    esac
    echo "$f -- $flags${isa:+ $isa}" # no blank at the end: for xargs -L the next line would belong to this one
done | xargs -P "$(nproc)" -L 1 clang-tidy --quiet 2> /dev/null || bad=1
[ $bad -eq 0 ] && echo "lint: ok"
exit $bad

#!/bin/sh
# Every header compiles alone, as C11 and, where a C++ compiler is there, as the C++17 that nvcc reads.
set -eu
bad=0 n=0
# shellcheck disable=SC2044 # no name has blanks
for h in $(find common format convert quantize runner cli -name '*.h'); do
    n=$((n + 1))
    printf '#include "%s"\n' "$h" | ${CC:-cc} -std=c11 -D_GNU_SOURCE -DPCRE2_CODE_UNIT_WIDTH=8 -I. -Wall -Wextra -Werror -fsyntax-only -x c - || bad=1
    case $h in cli/*) continue ;; esac
    command -v c++ > /dev/null || continue
    printf '#include "%s"\n' "$h" | c++ -std=c++17 -D_GNU_SOURCE -DPCRE2_CODE_UNIT_WIDTH=8 -I. -Wall -Wextra -Werror -fsyntax-only -x c++ - || bad=1
done
[ $bad -eq 0 ] && echo "headers: $n ok"
exit $bad

#!/bin/sh
# Calls that only one place may make, or none.  Comments and strings are taken out first, so that a comment
# may still say "malloc".
set -eu
dirs='common format convert quantize runner cli'
bad=0
strip() {
    sed -e 's|//.*||' -e 's|"[^"]*"|""|g' "$1" | awk '{
        while (match($0, /\/\*[^*]*\*\//)) $0 = substr($0, 1, RSTART - 1) substr($0, RSTART + RLENGTH)
        if (c) { if (sub(/.*\*\//, "")) c = 0; else { print ""; next } }
        if (match($0, /\/\*/)) { $0 = substr($0, 1, RSTART - 1); c = 1 }
        print }'
}
check() { # pattern, files that may (regex), what to do instead
    # shellcheck disable=SC2044,SC2086 # no name has blanks
    for f in $(find $dirs -name '*.c'); do
        echo "$f" | grep -qE "$2" && continue
        hits=$(strip "$f" | grep -nE "(^|[^a-zA-Z0-9_>.])($1) *\(" || true)
        [ -z "$hits" ] || { echo "$hits" | sed "s|^|$f:|; s|\$|   <- $3|"; bad=1; }
    done
}
check 'malloc|calloc|realloc|free|strdup|strndup' '^common/alloc\.c$' 'go through common/alloc.h'
check 'exit|_exit|abort' '^(cli/|common/alloc\.c)' 'return an error'
check 'printf|puts|putchar|fprintf|fputs' '^(cli/|common/log\.c)' 'go through common/log.h'
check 'atoi|atol|atof|sprintf|strcpy|strcat|gets|rand|srand|getenv' '^$' 'has a checked replacement'
check 'exp|expf|log|logf|log2|pow|powf|sin|sinf|cos|cosf|tanh' '^$' 'use common/fmath.h: libm differs by machine'
# shellcheck disable=SC2086
grep -rn '#pragma omp' --include='*.c' --include='*.h' $dirs 2> /dev/null | grep -v '^common/parallel\.c' && bad=1
# shellcheck disable=SC2086
grep -rn '#ifdef __AVX\|#if defined(__AVX' --include='*.c' --include='*.h' $dirs && bad=1
[ $bad -eq 0 ] && echo "banned: ok"
exit $bad

#!/bin/sh
# Every option in a subcommand's table has an entry in its man page with the same letter, argument and default,
# and the other way round; every command has a page.  The options of every command stand in llmq.1.
set -eu
llmq=$1 bad=0
tmp=$(mktemp -d)
trap 'rm -rf "$tmp"' EXIT
# An entry is ".It Fl x , Fl -name Ar ARG" (letter and argument as they apply), its default a line "The default is X."
page_options() {
    awk '
    function flush() { if (n != "") print n "\t" l "\t" a "\t" d; n = "" }
    /^\.It Fl / {
        flush(); l = ""; a = ""; d = ""
        for (i = 3; i <= NF; i++) {
            if ($i ~ /^-[a-z]/) n = substr($i, 2)
            else if ($i ~ /^[a-zA-Z]$/ && $(i - 1) == "Fl") l = $i
            if ($i == "Ar") { for (j = i + 1; j <= NF; j++) a = a (j > i + 1 ? " " : "") $j; break }
        }
    }
    /^The default is / { d = substr($0, 16); sub(/\.$/, "", d) }
    /^\.El/ { flush() }' "$1" | sort
}
"$llmq" convert --help-options > "$tmp/convert"
for c in $("$llmq" --list-commands); do
    page=docs/man/llmq-$c.1
    [ -f "$page" ] || { echo "$c: no $page"; bad=1; continue; }
    "$llmq" "$c" --help-options | sort > "$tmp/code"
    { page_options "$page"; page_options docs/man/llmq.1; } | sort > "$tmp/page"
    diff -u --label "$c --help-options" --label "$page and llmq.1" "$tmp/code" "$tmp/page" || bad=1
    grep -q "llmq-$c" docs/man/llmq.1 || { echo "llmq.1 does not name llmq-$c"; bad=1; }
done
[ $bad -eq 0 ] && echo "docs: option tables and man pages agree"
exit $bad

#!/bin/sh
# install.sh MAKE FLAVOUR: `make install` under a DESTDIR brings the binary, a page and a completion for everything there
# is; `make uninstall` removes exactly that, and leaves a stranger's files, names like ours among them.
set -eu
make=$1 flavour=$2
tmp=$(mktemp -d)
trap 'rm -rf "$tmp"' EXIT
fail() { echo "install: $*"; exit 1; }
at=$tmp/root/opt/l
run() { "$make" --no-print-directory FLAVOUR="$flavour" DESTDIR="$tmp/root" PREFIX=/opt/l "$1" > "$tmp/log" 2>&1 || fail "$1: $(cat "$tmp/log")"; }

mkdir -p "$at/bin" "$at/share/man/man1" "$at/share/bash-completion/completions"
for f in bin/llmq-other share/man/man1/llmq-other.1 share/bash-completion/completions/other; do
    echo mine > "$at/$f"
done
(cd "$at" && find . ! -type d) | LC_ALL=C sort > "$tmp/before"
run install
for c in $("$at/bin/llmq" --list-commands); do
    [ -s "$at/share/man/man1/llmq-$c.1" ] || fail "no page for $c"
    grep -qw "$c" "$at/share/bash-completion/completions/llmq" || fail "bash does not know $c"
done
for f in share/man/man1/llmq.1 share/man/man5/llmq.5 share/doc/llmq/README.md share/zsh/site-functions/_llmq \
    share/fish/vendor_completions.d/llmq.fish; do
    [ -s "$at/$f" ] || fail "no $f"
done
[ "$(find "$at/bin/llmq" -perm 755)" ] || fail "the mode of bin/llmq"
[ -z "$(find "$at" -type f ! -name llmq ! -perm 644 ! -path '*other*')" ] || fail "modes: $(find "$at" -type f ! -perm 644)"
"$at/bin/llmq" verify tests/format/good/"$(cd tests/format/good && find . -name '*.llmq' | LC_ALL=C sort | head -n 1)" > /dev/null
n=$(find "$at" -type f | wc -l)
run install # a second time replaces
[ "$(find "$at" -type f | wc -l)" -eq "$n" ] || fail "installed twice: other files"
run uninstall
(cd "$at" && find . ! -type d) | LC_ALL=C sort | cmp -s - "$tmp/before" || fail "uninstall leaves $(find "$at" ! -type d)"
[ ! -e "$at/share/doc/llmq" ] || fail "uninstall leaves share/doc/llmq"
[ ! -e "$tmp/root/usr" ] || fail "files outside the prefix"
run uninstall # nothing there is no error
echo "install: $n files come and go"

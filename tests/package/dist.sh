#!/bin/sh
# dist.sh MAKE VERSION: `make dist` twice gives the same bytes; the tarball holds what is committed and nothing else; it
# builds, passes its unit tests and knows its commit outside git, and in two folders gives the same Debian package.
set -eu
make=$1 version=$2
tmp=$(mktemp -d)
trap 'rm -rf "$tmp"' EXIT
fail() { echo "dist: $*"; exit 1; }
run() { "$make" --no-print-directory "$@" > "$tmp/log" 2>&1 || { tail -n 30 "$tmp/log"; fail "make $*"; }; }
ball=build/dist/llmq-$version.tar.gz

run dist
cp "$ball" "$tmp/one.tar.gz"
sleep 1
(umask 077 && touch README.md && run dist)
cmp "$tmp/one.tar.gz" "$ball" || fail "made twice: other bytes"
tar -tzf "$ball" | sed "s|^llmq-$version/||" | grep -v '/$' | grep -v '^$' | LC_ALL=C sort > "$tmp/inside"
{ git ls-tree -r --name-only HEAD; echo dist-commit; } | LC_ALL=C sort | diff - "$tmp/inside" || fail "other files than are committed"

deb=
for where in a a-longer/name; do
    mkdir -p "$tmp/$where"
    tar -xzf "$ball" -C "$tmp/$where"
    cd "$tmp/$where/llmq-$version"
    if [ -z "$deb" ]; then
        git rev-parse HEAD > /dev/null 2>&1 && fail "$tmp is in a git repository, expected none"
        run -j2 all unit docs-sync install-test
        build/release/llmq --version | grep -q "^llmq $version ($(head -n 1 dist-commit))$" || fail "$(build/release/llmq --version)"
    fi
    run -j2 deb
    [ -z "$deb" ] || cmp "$deb" build/deb/*.deb || fail "the package depends on the folder it is built in"
    deb=$(realpath build/deb/*.deb)
    cd "$OLDPWD"
done
echo "dist: $(du -k "$ball" | cut -f1) KiB, $(wc -l < "$tmp/inside") files; builds outside git; its package is reproducible"

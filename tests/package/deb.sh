#!/bin/sh
# deb.sh FILE.deb: as root, with network.  In a bare Debian of its own (debootstrap) the package is installed with what it
# depends on, quantizes the embedded model and runs it; after purge and autoremove there are the packages and the files
# that were there before.
#
# The Debian is this machine's: its release, and the mirror that apt has here (MIRROR=URL takes another).
set -eu
deb=$1
fail() { echo "deb: $*"; exit 1; }
[ "$(id -u)" -eq 0 ] || fail "needs root, for debootstrap and chroot"
if [ "${2:-}" != inside ]; then # mounts go with the name space, however this ends
    exec unshare -m sh "$0" "$deb" inside
fi
command -v debootstrap > /dev/null || fail "debootstrap is missing; please type: apt-get install -y debootstrap"
codename=$(sed -n 's/^VERSION_CODENAME=//p' /etc/os-release)
# shellcheck disable=SC2016 # the dollar is apt-get's
mirror=${MIRROR:-$(apt-get indextargets --format '$(REPO_URI)' 'Label: Debian' 'Component: main' "Codename: $codename" | head -n 1)}
root=$(mktemp -d)
clean() {
    umount "$root/proc" 2> /dev/null || true
    rm -rf --one-file-system "$root"
}
trap clean EXIT
trap 'exit 130' INT TERM

if command -v lintian > /dev/null; then
    lintian --fail-on error,warning --allow-root "$deb" || fail "lintian"
    said=', lintian has nothing to say'
else
    said=' (SKIPPED: no lintian here)'
fi

echo "deb: debootstrap $codename from ${mirror:-the default mirror}"
# shellcheck disable=SC2086 # without a mirror there is no word
debootstrap --variant=minbase "$codename" "$root" $mirror > "$root.log" 2>&1 || { tail -n 5 "$root.log"; fail "debootstrap"; }
rm -f "$root.log"
mount -t proc proc "$root/proc"
in_root() { chroot "$root" env -i PATH=/usr/sbin:/usr/bin:/sbin:/bin LC_ALL=C HOME=/root DEBIAN_FRONTEND=noninteractive "$@"; }
quietly() { in_root "$@" > "$root/log" 2>&1 || { tail -n 20 "$root/log"; fail "$*"; }; }
# What there is: packages, and files but for apt's and dpkg's own books.
state() {
    # shellcheck disable=SC2016 # the dollars are dpkg-query's
    in_root dpkg-query -W -f '${Package} ${Version} ${Status}\n'
    (cd "$root" && find . -xdev \( -path ./var/lib/dpkg -o -path ./var/lib/apt -o -path ./var/cache -o -path ./var/log -o -path ./tmp \
        -o -path ./log -o -path ./proc \) -prune -o -print) | LC_ALL=C sort
}

quietly apt-get update
state > "$root/tmp/before"
cp "$deb" "$root/tmp/llmq.deb"
cp -r calib_data/demo "$root/tmp/demo"
quietly apt-get install -y --no-install-recommends /tmp/llmq.deb
in_root dpkg -V llmq || fail "other bytes than its md5sums"
in_root ldd /usr/bin/llmq | grep 'not found' && fail "a library that it does not depend on"
in_root llmq --version | sed 's/^/    /'
quietly llmq quantize /tmp/demo --rtn -o /tmp/rtn.llmq
quietly llmq verify /tmp/rtn.llmq
in_root llmq run /tmp/rtn.llmq --raw -p 'Once upon a time' -n 24 --temperature 0 --ignore-eos > "$root/tmp/text"
[ "$(wc -w < "$root/tmp/text")" -ge 10 ] || fail "run writes: $(cat "$root/tmp/text")"
build/release/llmq quantize calib_data/demo --rtn -o "$root/tmp/here.llmq" -q
cmp "$root/tmp/rtn.llmq" "$root/tmp/here.llmq" || fail "other bytes than the build's own binary writes"
in_root bash -c '. /usr/share/bash-completion/completions/llmq && complete -p llmq' > "$root/log" || fail "completion"
state > "$root/tmp/with"
cmp -s "$root/tmp/before" "$root/tmp/with" && fail "installing changed nothing"

quietly apt-get purge -y llmq
quietly apt-get autoremove -y --purge
state | diff "$root/tmp/before" - || fail "purge leaves something (< before, > after)"
echo "deb: installs, quantizes, runs, goes without a trace ($(grep -c '^\./' "$root/tmp/with") files with it, $(grep -c '^\./' "$root/tmp/before") before)$said"

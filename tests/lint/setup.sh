#!/bin/sh
# setup.sh COMMANDS PKG_CONFIG_NAMES DEBIAN_PACKAGES: probes for commands and libraries; when one is
# missing, root on Debian gets the packages installed, and anyone else the line to type.
set -eu
commands=$1 libs=$2 packages=$3 missing=
for c in $commands; do
    command -v "$c" > /dev/null 2>&1 || missing="$missing $c"
done
if [ -n "$libs" ]; then
    for l in $libs; do
        pkg-config --exists "$l" 2> /dev/null || missing="$missing $l"
    done
fi
[ -z "$missing" ] && exit 0
echo "setup: missing:$missing" >&2
if [ "$(id -u)" -ne 0 ] || ! command -v apt-get > /dev/null 2>&1; then
    echo "setup: please type: sudo apt-get install -y $packages" >&2
    exit 1
fi
export DEBIAN_FRONTEND=noninteractive
apt-get update -qq
# shellcheck disable=SC2086
apt-get install -y -qq --no-install-recommends $packages > /dev/null

#!/bin/sh
# deb.sh ROOT VERSION EPOCH MAINTAINER OUT.deb: a Debian package of what `make install` put under ROOT (with PREFIX=/usr).
#
# The same tree, version, epoch (seconds; the commit's) and dpkg give the same bytes: names sorted, times clamped, owners
# root, nothing of the building machine inside.
set -eu
root=$1 version=$2 epoch=$3 maintainer=$4 out=$5
here=$(dirname "$0")
doc=$root/usr/share/doc/llmq
umask 022
export SOURCE_DATE_EPOCH="$epoch" LC_ALL=C TZ=UTC

strip --strip-unneeded --remove-section=.comment --remove-section=.note "$root/usr/bin/llmq"
rm -f "$doc/LICENSE" # it stands in common-licenses
cp "$here/copyright" "$doc/copyright"
cat > "$doc/changelog" << EOF
llmq ($version) unstable; urgency=medium

  * What changed is in CHANGELOG.md.gz, beside this file.

 -- $maintainer  $(date -u -R -d "@$epoch")
EOF
find "$root/usr/share/man" -type f ! -name '*.gz' -exec gzip -9n {} +
gzip -9nf "$doc/changelog" "$doc/CHANGELOG.md"
find "$root/usr" -type d -exec chmod 755 {} +
find "$root/usr" -type f ! -path '*/bin/*' -exec chmod 644 {} +

# dpkg-shlibdeps wants a source package around it.
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
mkdir -p "$work/debian/llmq/DEBIAN" "$work/debian/llmq/usr/bin"
cp "$root/usr/bin/llmq" "$work/debian/llmq/usr/bin/"
printf 'Source: llmq\n\nPackage: llmq\nArchitecture: any\n' > "$work/debian/control"
depends=$(cd "$work" && dpkg-shlibdeps -O debian/llmq/usr/bin/llmq | sed -n 's/^shlibs:Depends=//p')
[ -n "$depends" ] || { echo "deb: dpkg-shlibdeps names no library" >&2; exit 1; }

mkdir -p "$root/DEBIAN"
(cd "$root" && find usr -type f | sort | xargs md5sum) > "$root/DEBIAN/md5sums"
{
    cat << EOF
Package: llmq
Version: $version
Architecture: $(dpkg --print-architecture)
Maintainer: $maintainer
Installed-Size: $(find "$root/usr" -type f -printf '%s\n' | awk '{n += int(($1 + 1023) / 1024)} END {print n}')
Depends: $depends
Section: science
Priority: optional
EOF
    cat "$here/description"
} > "$root/DEBIAN/control"
find "$root" -exec touch -h -d "@$epoch" {} +
dpkg-deb -Zxz --root-owner-group --build "$root" "$out" > /dev/null

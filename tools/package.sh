#!/usr/bin/env bash
# Makes a release of the commit that is checked out, in build/dist. What it makes of one commit is always the same bytes.
#   tools/package.sh deb      skein_<version>_<architecture>.deb
#   tools/package.sh tarball  skein-<version>-linux-<architecture>.tar.gz, its SPDX list, and SHA256SUMS over all that is there
#   tools/package.sh image    skein-<version>-oci.tar, an OCI archive with the .deb on a small Debian (root, mmdebstrap)
# SKEIN_CUDA=ON has the GPU's part in it, SKEIN_FLEET=ON a store that servers share. BUILD=<folder> names another build tree than
# build/package, DIST=<folder> another place for the results.
set -euo pipefail
cd "$(dirname "$0")/.."
what=${1:?deb, tarball or image}
build=${BUILD:-build/package} dist=${DIST:-build/dist}
stage=$dist/stage

version=$(sed -n 's/^project(skein VERSION \([0-9.]*\).*/\1/p' CMakeLists.txt)
architecture=$(dpkg --print-architecture)
SOURCE_DATE_EPOCH=$(git log -1 --format=%ct)
export SOURCE_DATE_EPOCH TZ=UTC LC_ALL=C.UTF-8
umask 022
grep -q "^## $version\b" CHANGELOG.md || { echo "package: CHANGELOG.md has no section of $version" >&2; exit 1; }
[ -z "$(git status --porcelain --untracked-files=no)" ] || echo "package: the tree differs from its commit; this is no release" >&2

# The binary and everything that is installed beside it, below $stage.
make_stage() {
  cmake --preset package -B "$build" -DSKEIN_BINARY_DIR="$PWD/$build/bin" -DSKEIN_CUDA="${SKEIN_CUDA:-OFF}" \
    -DSKEIN_FLEET="${SKEIN_FLEET:-OFF}" >"$build.log" 2>&1 ||
    { cat "$build.log" >&2; exit 1; }
  cmake --build "$build" --target skein -j "${JOBS:-$(nproc)}" >>"$build.log" 2>&1 || { tail -40 "$build.log" >&2; exit 1; }
  rm -rf "$stage"
  DESTDIR="$PWD/$stage" cmake --install "$build" --prefix /usr --component server >>"$build.log"
  strip --strip-unneeded --remove-section=.comment --remove-section=.note "$stage/usr/bin/skein"
  install -D -m 644 packaging/skein.default "$stage/etc/default/skein"
  mkdir -p "$stage/usr/share/doc/skein"
  install -m 644 packaging/copyright "$stage/usr/share/doc/skein/copyright"
  gzip -9n <CHANGELOG.md >"$stage/usr/share/doc/skein/NEWS.gz"
  debian_changelog | gzip -9n >"$stage/usr/share/doc/skein/changelog.gz"
  gzip -9n "$stage"/usr/share/man/man1/*.1
  find "$stage" -type d -exec chmod 755 {} + -o -type f ! -perm -100 -exec chmod 644 {} +
  find "$stage" -exec touch -h -d "@$SOURCE_DATE_EPOCH" {} +
}

debian_changelog() {
  printf 'skein (%s) unstable; urgency=medium\n\n  * Release %s, as NEWS.gz describes it.\n\n -- %s  %s\n' "$version" "$version" \
    "$maintainer" "$(date -R -d "@$SOURCE_DATE_EPOCH")"
}
maintainer='The skein authors <skein@example.org>'

make_deb() {
  make_stage
  local control=$stage/DEBIAN work=$dist/shlibs
  mkdir -p "$control" "$work/debian"
  : >"$work/debian/control"
  local depends
  depends=$(cd "$work" && dpkg-shlibdeps -O --ignore-missing-info -e"$OLDPWD/$stage/usr/bin/skein" 2>/dev/null | sed 's/^shlibs:Depends=//')
  rm -rf "$work"
  cat >"$control/control" <<CONTROL
Package: skein
Version: $version
Architecture: $architecture
Maintainer: $maintainer
Installed-Size: $(du -sk --exclude=DEBIAN --apparent-size "$stage" | cut -f1)
Depends: $depends
Section: net
Priority: optional
Description: server for large language models with continuous batching
 skein loads a GGUF file or a Hugging Face folder and serves it to many
 clients at once over the HTTP of OpenAI and Anthropic. It batches the
 requests of everyone step by step; the same request gives the same answer
 at any load.
CONTROL
  install -m 755 packaging/debian/postinst packaging/debian/prerm packaging/debian/postrm "$control/"
  install -m 644 packaging/debian/conffiles "$control/"
  (cd "$stage" && find . -path ./DEBIAN -prune -o -type f ! -path ./etc/default/skein -printf '%P\n' | sort | xargs md5sum >DEBIAN/md5sums)
  find "$control" -exec touch -d "@$SOURCE_DATE_EPOCH" {} +
  deb=$dist/skein_${version}_${architecture}.deb
  dpkg-deb --root-owner-group -Zxz --build "$stage" "$deb" >/dev/null
  rm -rf "$control"
}

make_tarball() {
  make_stage
  local name=skein-$version-linux-$architecture
  tar --sort=name --mtime="@$SOURCE_DATE_EPOCH" --owner=0 --group=0 --numeric-owner --transform="s,^\.,$name," \
    -C "$stage" -cf - . | gzip -9n >"$dist/$name.tar.gz"
  tools/spdx.py --stage "$stage" --version "$version" --commit "$(git rev-parse HEAD)" --time "$SOURCE_DATE_EPOCH" \
    --out "$dist/skein-$version.spdx.json"
  (cd "$dist" && find . -maxdepth 1 -type f ! -name SHA256SUMS -printf '%P\n' | sort | xargs sha256sum >SHA256SUMS)
}

# Debian's essential packages, what the .deb depends on, the .deb, and a user; nothing of this machine.
make_image() {
  [ "$(id -u)" -eq 0 ] || { echo "package: only root can make a Debian in a folder" >&2; exit 1; }
  make_deb
  local names tree=$dist/root.tar
  names=$(dpkg-deb -f "$deb" Depends | sed 's/ *([^)]*)//g; s/, /,/g')
  mmdebstrap --quiet --variant=essential --include="$names" --components=main \
    --customize-hook="cp '$deb' \"\$1/skein.deb\"" \
    --customize-hook='chroot "$1" dpkg -i /skein.deb >/dev/null && rm "$1/skein.deb"' \
    --customize-hook='echo "skein:x:10001:10001::/var/lib/skein:/usr/sbin/nologin" >>"$1/etc/passwd"; echo "skein:x:10001:" >>"$1/etc/group"' \
    --customize-hook='install -d -o 10001 -g 10001 -m 700 "$1/var/lib/skein" "$1/var/lib/skein/models"' \
    --customize-hook='printf "deb http://deb.debian.org/debian bookworm main\n" >"$1/etc/apt/sources.list"; rm -rf "$1"/etc/apt/sources.list.d/* "$1"/etc/apt/apt.conf.d/*proxy*' \
    --customize-hook='rm -rf "$1"/var/cache/* "$1"/var/log/* "$1"/usr/share/man "$1"/usr/share/locale "$1"/etc/resolv.conf "$1"/etc/hostname' \
    bookworm "$tree"
  tools/oci_image.py --root "$tree" --version "$version" --commit "$(git rev-parse HEAD)" --time "$SOURCE_DATE_EPOCH" \
    --architecture "$architecture" --out "$dist/skein-$version-oci.tar"
  rm "$tree"
}

mkdir -p "$dist" "$(dirname "$build")"
case $what in
  deb) make_deb ;;
  tarball) make_tarball ;;
  image) make_image ;;
  *) echo "package: $what is neither deb nor tarball nor image" >&2; exit 2 ;;
esac
rm -rf "$stage"
(cd "$dist" && ls -l --time-style=+ | awk 'NR > 1 { print "package: " $5 " bytes  " $6 }')

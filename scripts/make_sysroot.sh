#!/usr/bin/env bash
# Makes what wheels are compiled against (cmake/sysroot.cmake), in build/sysroot/<architecture>, and a system with Python
# for tests of the wheel for aarch64, whose programs run under QEMU, in build/sysroot/aarch64-python:
#   scripts/make_sysroot.sh x86_64
#   scripts/make_sysroot.sh aarch64
#   scripts/make_sysroot.sh aarch64-python
# The first two have the C library and libstdc++ of Debian 11 (glibc 2.31, GCC 10); the kernel's headers, liburing and librados of Debian 12; and
# libblkid, compiled from Debian 12's source because its archive is not relocatable. Debian's key verifies all of it.
# Nothing is installed into the system but the tools below, and of what is unpacked nothing is run here.
#   DEBIAN_MIRROR=URI     where the packages come from; by default where this system's do, if that is Debian 12
set -euo pipefail
cd "$(dirname "$0")/.."
. scripts/packages.sh
give_up_status=1

needs_of_sysroot() {
    need clang links filesystem clang++ -pthread
    need lld program ld.lld
    need make program make
    need pkg-config program pkg-config
    need dpkg-dev program dpkg-source
    need xz-utils program xz
    need debian-archive-keyring test -e "$debian_key"
}

# with_apt FOLDER ARCHITECTURE COMMAND...: apt-get with settings of its own, which read $folder/sources.list.
with_apt() {
    local folder=$1 architecture=$2
    mkdir -p "$folder"/lists/partial "$folder"/archives/partial "$folder"/files
    touch "$folder/status"
    {
        apt-config dump 2>/dev/null | grep '^Acquire::.*"[^"]\+"' || true
        cat <<EOF
Dir::State "$folder"; Dir::State::status "$folder/status"; Dir::Cache "$folder";
Dir::Etc::SourceList "$folder/sources.list"; Dir::Etc::SourceParts "/nowhere";
Dir::Etc::Preferences "/nowhere"; Dir::Etc::PreferencesParts "/nowhere";
APT::Architecture "$architecture"; APT::Architectures { "$architecture"; }; APT::Sandbox::User "root";
Acquire::Languages "none";
EOF
    } >"$folder/apt.conf"
    (cd "$folder/files" && shift 2 && APT_CONFIG=$folder/apt.conf apt-get -qq "$@") 2>&1 | { grep -v '^W: ' || true; }
}

# The packages for aarch64 are those of a cross compiler, which come with x86-64.
get_old_libraries() {
    local folder=$work/old names=(libc6 libc6-dev libgcc-s1 libgcc-10-dev libstdc++6 libstdc++-10-dev)
    [ "$architecture" = x86_64 ] || names=("${names[@]/%/-arm64-cross}")
    mkdir -p "$folder"
    printf 'deb [signed-by=%s] %s bullseye main\n' "$debian_key" "$debian" >"$folder/sources.list"
    with_apt "$folder" amd64 update
    with_apt "$folder" amd64 download "${names[@]}"
    [ "$(find "$folder/files" -name '*.deb' | wc -l)" = ${#names[@]} ] ||
        give_up "not all of ${names[*]} of Debian 11 could be downloaded; name a mirror that has it with DEBIAN_MIRROR=URI"
}

debian_12() {
    printf '%s [signed-by=%s] %s bookworm main\n' deb "$debian_key" "$debian" deb-src "$debian_key" "$debian"
}

get_debian() {
    local folder=$work/debian
    mkdir -p "$folder"
    debian_12 >"$folder/sources.list"
    with_apt "$folder" "$debian_architecture" update
    with_apt "$folder" "$debian_architecture" download linux-libc-dev liburing-dev \
        librados-dev libradospp-dev librados2
    with_apt "$folder" "$debian_architecture" source --download-only util-linux
}

# unpack FILE...: a link to a place in the system becomes one to the same place in here.
unpack() {
    local file
    for file in "$@"; do
        dpkg-deb --extract "$file" "$root"
    done
    find "$root" -type l -lname '/*' | while read -r file; do
        ln --symbolic --force --relative "$root$(readlink "$file")" "$file"
    done
}

arrange() {
    # The cross compiler's packages have a folder of their own; its place in a system is where compilers look.
    if [ -d "$root/usr/$triple" ]; then
        cp -a "$root/usr/$triple/include/." "$root/usr/include/"
        cp -a "$root/usr/$triple/lib/." "$root/usr/lib/$triple/"
        ln -s "usr/$triple/lib" "$root/lib"
    fi
    # Of liburing the archive alone is linked.
    rm -f "$root/usr/lib/$triple"/liburing*.so*
}

compile_libblkid() {
    local source=$work/util-linux lib=$root/usr/lib/$triple
    mkdir -p "$source/build" "$root/usr/include/blkid" "$root/usr/share/doc/libblkid" &&
        tar --extract --strip-components=1 --directory "$source" --file "$work"/debian/files/util-linux_*.orig.tar.xz &&
        cd "$source/build" &&
        PKG_CONFIG_LIBDIR=/nowhere ../configure --quiet --host="$triple" --prefix=/usr --libdir="/usr/lib/$triple" \
            --disable-all-programs --enable-libblkid --disable-shared --enable-static --with-pic --disable-nls \
            CC="$(command -v ccache) clang --target=$triple --sysroot=$root" CFLAGS=-O2 LDFLAGS=-fuse-ld=lld &&
        make --silent -j"$(nproc)" libblkid.la libblkid/blkid.pc &&
        cp .libs/libblkid.a "$lib/" &&
        cp libblkid/blkid.pc "$lib/pkgconfig/" &&
        cp libblkid/src/blkid.h "$root/usr/include/blkid/" &&
        cp ../Documentation/licenses/COPYING.LGPL-2.1-or-later "$root/usr/share/doc/libblkid/"
}

build_libblkid() {
    local log=build/sysroot/libblkid.log
    (compile_libblkid) >"$log" 2>&1 || {
        tail -n 30 "$log" >&2
        give_up "could not compile libblkid; the whole output is in $log"
    }
}

make_libraries() {
    get_old_libraries
    get_debian
    unpack "$work"/{old,debian}/files/*.deb
    arrange
    build_libblkid
}

# With all that these two packages depend on.
make_python() {
    local folder=$work/python
    mkdir -p "$folder"
    debian_12 >"$folder/sources.list"
    with_apt "$folder" "$debian_architecture" update
    with_apt "$folder" "$debian_architecture" --yes --no-install-recommends --download-only install python3 libstdc++6
    unpack "$folder"/archives/*.deb
}

wanted=${1:-x86_64}
case "$wanted" in
x86_64) make=make_libraries debian_architecture=amd64 has=usr/include/rados/librados.hpp ;;
aarch64) make=make_libraries debian_architecture=arm64 has=usr/include/rados/librados.hpp ;;
aarch64-python) make=make_python debian_architecture=arm64 has=usr/bin/python3 ;;
*) give_up "unknown system '$wanted'; use x86_64, aarch64 or aarch64-python" ;;
esac
architecture=${wanted%-python}
triple=$architecture-linux-gnu
final=$PWD/build/sysroot/$wanted
debian_key=/usr/share/keyrings/debian-archive-keyring.gpg

install_missing needs_of_sysroot
[ ! -e "$final/$has" ] || exit 0
debian=${DEBIAN_MIRROR:-$(apt-get indextargets --format '$(CODENAME) $(SITE)' | sed -n 's/^bookworm //p' | head -n 1)}
[ -n "$debian" ] || give_up "this system has no packages of Debian 12; name a mirror with DEBIAN_MIRROR=URI"
say "making $final"
mkdir -p build/sysroot
work=$(mktemp -d "$PWD/build/sysroot/work-XXXXXX")
trap 'rm -rf "$work"' EXIT
root=$work/root
mkdir "$root"
"$make"
# Moved into place when complete. Nothing in it knows its own path. One without librados is from an earlier release.
rm -rf "$final"
mv "$root" "$final"

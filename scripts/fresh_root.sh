#!/usr/bin/env bash
# Runs commands in a clone of this repository inside a new, minimal Debian 12, as on a machine that nobody has used:
#   scripts/fresh_root.sh                                  both commands of the README
#   scripts/fresh_root.sh 'make demo' 'make test-unit'     others, one after the other
# The root has what installing Debian needs, and make; everything else has to come from the commands themselves. They
# see the last commit, no terminal and none of this shell's environment but the way to package servers. A stage of the
# tests that is skipped as a whole, because its packages cannot be installed, is a failure here.
#   FRESH_ROOT=DIR     makes the root there and keeps it, with all that was installed and built, for the next run
#   FRESH_MIRROR=URI   where Debian comes from; mmdebstrap's own choice otherwise
# Needs root: for the new root, and because the tests make loop devices. Ends what it started, also when interrupted.
set -euo pipefail
cd "$(dirname "$0")/.."

readonly suite=bookworm
readonly project=/src/rawduck
# Is there when the root is.
readonly complete=/var/lib/fresh-root-is-complete

say() { printf 'fresh_root: %s\n' "$*" >&2; }
fail() {
    say "$*"
    exit 2
}

install_mmdebstrap() {
    command -v mmdebstrap >/dev/null && return
    command -v apt-get >/dev/null || fail "mmdebstrap is missing, and this is not a Debian system; install it"
    say "installing mmdebstrap"
    apt-get -qq update && DEBIAN_FRONTEND=noninteractive apt-get -qq -y --no-install-recommends install mmdebstrap \
        >/dev/null || fail "could not install mmdebstrap, see above"
}

# How apt gets its packages here, through a proxy for one.
apt_settings() { apt-config dump 2>/dev/null | grep '^Acquire::.*"[^"]\+"' || true; }

make_root() {
    [ ! -e "$root$complete" ] || return 0
    say "making a new root of Debian $suite in $root"
    apt_settings >"$settings"
    mmdebstrap --quiet --variant=minbase --include=make --aptopt="$settings" "$suite" "$root" \
        ${FRESH_MIRROR:+"$FRESH_MIRROR"} || fail "mmdebstrap could not make a root in $root, see above"
    touch "$root$complete"
}

# How this machine reaches package servers is not what is tested: names, pip's settings, proxies, certificates. These
# get a place of their own, because installing Debian's would overwrite them.
give_network() {
    local file bundle=${PIP_CERT:-${SSL_CERT_FILE:-${REQUESTS_CA_BUNDLE:-}}}
    for file in /etc/resolv.conf /etc/hosts /etc/pip.conf; do
        [ ! -e "$file" ] || cp -L "$file" "$root$file"
    done
    mapfile -t variables < <(env | grep -iE '^(pip_(extra_)?index_url|(https?|no)_proxy)=')
    if [ -n "$bundle" ]; then
        cp -L "$bundle" "$root/etc/certificates-of-the-machine.pem"
        variables+=({PIP_CERT,SSL_CERT_FILE,REQUESTS_CA_BUNDLE}=/etc/certificates-of-the-machine.pem)
    fi
}

# The last commit. In a root that was kept, what earlier runs have built stays.
clone_project() {
    local clone=$root$project
    [ -z "$(git status --porcelain)" ] || say "note: changes that are not committed are left out"
    [ -e "$clone/.git" ] || git clone --quiet --no-hardlinks --no-checkout "$PWD" "$clone"
    git -C "$clone" fetch --quiet "$PWD" HEAD
    git -C "$clone" checkout --quiet --force --detach FETCH_HEAD
    git -C "$clone" clean --quiet --force -d
}

# Namespaces of its own: every process and every mount in it ends with the command.
run_in_root() {
    unshare --mount --pid --fork --kill-child bash -euc '
        root=$1 project=$2
        shift 2
        mount --make-rprivate /
        for directory in dev sys; do mount --rbind "/$directory" "$root/$directory"; done
        mount -t proc proc "$root/proc"
        cd "$root"
        exec chroot "$root" /usr/bin/env -i HOME=/root PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin \
            RAWDUCK_EVERY_STAGE=1 "${@:2}" /bin/bash -c "cd $project && $1"
    ' bash "$root" "$project" "$1" "${variables[@]}" </dev/null
}

# A function, which the shell has read whole before it begins: this file may change while it runs.
main() {
    [ "$(id -u)" = 0 ] || fail "run this as root"
    [ $# -gt 0 ] || set -- 'make demo' 'make test'
    install_mmdebstrap
    settings=$(mktemp)
    root=${FRESH_ROOT:-}
    if [ -n "$root" ]; then
        mkdir -p "$root"
        root=$(realpath "$root")
        trap 'rm -f "$settings"' EXIT
    else
        root=$(mktemp -d /var/tmp/fresh-root.XXXXXX)
        trap 'rm -f "$settings"; rm -rf --one-file-system "$root"' EXIT
    fi
    chmod 755 "$root"
    make_root
    give_network
    clone_project
    for command in "$@"; do
        say "\$ $command"
        start=$SECONDS status=0
        run_in_root "$command" || status=$?
        say "'$command' ended with $status after $((SECONDS - start)) s"
        [ "$status" = 0 ] || exit "$status"
    done
    exit 0
}

main "$@"

# Sourced by the bootstrap scripts: finds what is missing by trying what is used of it, and installs it from Debian.
#
# A script sets give_up_status, its exit status where something cannot be installed, and defines a function with one
# line for each need:
#   need PACKAGE COMMAND...     the Debian package that has it, and a command that succeeds where it is there already
# A command's name says little: clang may lack its sanitizers, a header its library. So libraries and compilers'
# features are linked.

say() { printf '%s: %s\n' "$(basename "$0" .sh)" "$*" >&2; }

# Explains itself with its arguments and ends the script.
give_up() {
    say "$*"
    exit "$give_up_status"
}

# make_venv VENV ARGUMENT...: a Python environment, made if it is not there, with what pip installs for the arguments.
make_venv() {
    [ -x "$1/bin/python" ] || "${PYTHON:-python3}" -m venv "$1"
    "$1/bin/python" -m pip install --quiet --disable-pip-version-check "${@:2}" >&2
}

need() {
    local package=$1
    shift
    "$@" >/dev/null 2>&1 </dev/null && return
    [[ " ${missing_packages[*]} " = *" $package "* ]] || missing_packages+=("$package")
}

# program NAME...: all of them can be called; those of administrators too.
program() {
    local name
    for name in "$@"; do
        PATH=$PATH:/usr/sbin:/sbin command -v "$name" || return
    done
}

# links HEADERS COMPILER OPTION...: a program that includes them, such as 'a.h b/c.h', is compiled and linked. Headers
# are only looked for, because reading a large one takes a second.
links() {
    local header program='' output
    for header in $1; do
        program+=$'#if !__has_include(<'$header$'>)\n#error\n#endif\n'
    done
    program+='extern "C" int LLVMFuzzerTestOneInput(const unsigned char *, unsigned long) { return 0; }'
    [[ " $* " = *fuzzer* ]] || program+=$'\nint main() { return 0; }'
    output=$(mktemp)
    local status=0
    "$2" -std=c++17 -x c++ - -o "$output" "${@:3}" <<<"$program" || status=$?
    rm -f "$output"
    return "$status"
}

# The C++ compiler that CMake takes.
cxx() {
    local name
    for name in "${CXX:-c++}" g++ clang++; do
        command -v "$name" && return
    done
    echo c++
}

# The Debian package that has a compiler's sanitizers.
sanitizer_package() {
    local major
    major=$("$1" -dumpversion 2>/dev/null) || major=
    case $("$1" --version 2>/dev/null) in
    *clang*) echo "libclang-rt-${major%%.*}-dev" ;;
    *) [ -n "$major" ] && echo "libgcc-${major%%.*}-dev" || echo g++ ;;
    esac
}

# need_libpython [PYTHON]: DuckDB's Python module, when a program other than Python has it inside, needs the library of
# the Python that it was installed for.
need_libpython() {
    local python=.venv/bin/python library
    [ -x "$python" ] || python=${1:-python3}
    library=libpython$("$python" -c 'import sys; print(*sys.version_info[:2], sep=".")' 2>/dev/null) || return 0
    need "$library" links '' "$(cxx)" "-l:$library.so.1.0"
}

# Runs a command as root: directly, or through sudo where it may ask or need not. 77: this user cannot.
as_root() {
    if [ "$(id -u)" = 0 ]; then
        "$@"
    elif command -v sudo >/dev/null && { [ -t 0 ] || sudo -n true 2>/dev/null; }; then
        sudo "$@"
    else
        return 77
    fi
}

# apt_get PURPOSE ARGUMENT...: PURPOSE, a command, is what the user is told to run where this one does not work. Another
# apt-get that is at work, such as a new machine's own updates, is waited for.
apt_get() {
    local status=0
    as_root env DEBIAN_FRONTEND=noninteractive apt-get -qq -o DPkg::Lock::Timeout=300 "${@:2}" >/dev/null || status=$?
    [ "$status" != 77 ] || give_up "packages are missing and this user cannot install them; run as root: $1"
    [ "$status" = 0 ] || give_up "could not install packages, see above; run as root and look at its output: $1"
}

# install_missing FUNCTION: until its needs are met. Some show only when others are met, such as a compiler's parts.
install_missing() {
    local before='' missing_packages purpose
    while true; do
        missing_packages=()
        "$1"
        [ ${#missing_packages[@]} -gt 0 ] || return 0
        [ "$before" != "${missing_packages[*]}" ] ||
            give_up "installed $before, and what is used of it is still not there; $1 in $0 says what is tried"
        before=${missing_packages[*]}
        command -v apt-get >/dev/null ||
            give_up "these are missing, and this is not a Debian system; install their equivalents: $before"
        say "installing $before"
        purpose="apt-get install --no-install-recommends $before"
        apt_get "$purpose" update
        apt_get "$purpose" install -y --no-install-recommends "${missing_packages[@]}"
    done
}

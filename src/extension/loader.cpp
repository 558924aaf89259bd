//! The entry object of the host form: what `LOAD rawduck.duckdb_extension` maps into the process. The build
//! names the extension: rawduck, or another one of this project.
//!
//! The extension proper (lib<name>_host.so, beside this file) leaves DuckDB's C++ symbols undefined and
//! takes them from the process that loads it, which keeps it small and quick to build. DuckDB's Python wheel
//! exports those symbols, but Python imports it RTLD_LOCAL, so the dynamic linker would not find them. This
//! object has no DuckDB symbol of its own and can therefore be mapped by any DuckDB; it makes the symbols of
//! its host visible and only then maps the extension proper.
#include <cstring>
#include <dlfcn.h>
#include <stdexcept>
#include <string>

namespace duckdb {
class ExtensionLoader;
}

namespace {

constexpr const char *REQUIRED_VERSION = RAWDUCK_DUCKDB_VERSION;
constexpr const char *ENTRY_POINT = RAWDUCK_NAME "_duckdb_cpp_init";
//! duckdb::DuckDB::LibraryVersion(): tells whether the host exports its C++ symbols, and which release it is.
constexpr const char *VERSION_SYMBOL = "_ZN6duckdb6DuckDB14LibraryVersionEv";

std::string LastLoaderError() {
    const char *text = dlerror();
    return text ? text : "unknown error of the dynamic linker";
}

std::string PathOfObjectAt(const void *address) {
    Dl_info info;
    if (dladdr(address, &info) == 0 || !info.dli_fname) {
        throw std::runtime_error(RAWDUCK_NAME
                                 ": cannot find the shared object at an address of its own process");
    }
    return info.dli_fname;
}

//! Makes the symbols of the object that called us visible to what is loaded next. Returns a handle on it.
void *PromoteHost(const void *host_address) {
    void *handle = dlopen(PathOfObjectAt(host_address).c_str(), RTLD_NOW | RTLD_NOLOAD | RTLD_GLOBAL);
    // The main program has no name to be reopened by; its symbols, if it exports any, are global already.
    return handle ? handle : dlopen(nullptr, RTLD_NOW);
}

void CheckHost(void *host) {
    auto version = reinterpret_cast<const char *(*)()>(host ? dlsym(host, VERSION_SYMBOL) : nullptr);
    if (!version) {
        throw std::runtime_error(RAWDUCK_NAME
                                 ": this program does not export DuckDB's C++ symbols (the official "
                                 "command-line client does not), "
                                 "so this build of the extension cannot run in it. Use DuckDB's Python "
                                 "package, or the static form of the "
                                 "extension, which runs in every DuckDB: `make static`.");
    }
    if (std::strcmp(version(), REQUIRED_VERSION) != 0) {
        throw std::runtime_error(
            std::string(RAWDUCK_NAME ": built for DuckDB ") + REQUIRED_VERSION +
            " and tied to its C++ interface, but this is DuckDB " + version() +
            ". pip install duckdb==" + (REQUIRED_VERSION + 1) +
            " installs the DuckDB that fits, and pip install --upgrade rawduck duckdb==" + (version() + 1) +
            " the rawduck that fits this one, if there is one.");
    }
}

} // namespace

extern "C" __attribute__((visibility("default"))) void RAWDUCK_ENTRY_POINT(duckdb::ExtensionLoader &loader) {
    CheckHost(PromoteHost(__builtin_return_address(0)));

    std::string self = PathOfObjectAt(reinterpret_cast<const void *>(&RAWDUCK_ENTRY_POINT));
    std::string path = self.substr(0, self.rfind('/') + 1) + "lib" RAWDUCK_NAME "_host.so";
    // Never closed: DuckDB keeps pointers into it for as long as the process lives.
    void *extension = dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL);
    if (!extension) {
        throw std::runtime_error(
            RAWDUCK_NAME ": cannot load " + path + ": " + LastLoaderError() +
            ". The file belongs beside " RAWDUCK_NAME ".duckdb_extension. If a symbol of duckdb is "
            "undefined, this DuckDB does not export all of its C++ symbols: use the static "
            "form of the extension (`make static`). " RAWDUCK_LOAD_HINT);
    }
    auto init = reinterpret_cast<void (*)(duckdb::ExtensionLoader &)>(dlsym(extension, ENTRY_POINT));
    if (!init) {
        throw std::runtime_error(RAWDUCK_NAME ": " + path + " has no entry point: " + LastLoaderError());
    }
    init(loader);
}

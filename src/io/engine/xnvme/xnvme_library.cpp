#include "io/engine/xnvme/xnvme_library.hpp"

#include "common/error.hpp"

#include <csignal>
#include <cstdlib>
#include <dlfcn.h>
#include <map>
#include <memory>
#include <mutex>
#include <unistd.h>

namespace rawduck {
namespace {

constexpr const char *MODULE_FILE = "librawduck_xnvme.so";
constexpr const char *HOW_TO_GET_IT = "It is built together with rawduck when pkg-config finds xnvme: "
                                      "install xNVMe 0.7.5 or newer from its source "
                                      "(https://github.com/xnvme/xnvme), name its lib/pkgconfig in "
                                      "PKG_CONFIG_PATH if that is not a standard place, "
                                      "and build rawduck again; or use another engine";

//! A libxnvme with SPDK takes the signal when it is loaded, used or not, and its handler returns to the access that
//! failed, which then fails for ever.
class KeptSignal {
  public:
    explicit KeptSignal(int number) : number_(number), known_(sigaction(number, nullptr, &action_) == 0) {}
    ~KeptSignal() {
        if (known_) {
            sigaction(number_, &action_, nullptr);
        }
    }
    KeptSignal(const KeptSignal &) = delete;
    KeptSignal &operator=(const KeptSignal &) = delete;

  private:
    const int number_;
    struct sigaction action_ = {};
    const bool known_;
};

const XnvmeModule *Load(const std::string &path, std::string &obstacle) {
    if (access(path.c_str(), R_OK) != 0) {
        obstacle = "it needs " + path + ", which is not there. " + HOW_TO_GET_IT;
        return nullptr;
    }
    // Never closed: queues of other threads may still be in it. RTLD_NOW: a libxnvme of another generation
    // lacks symbols, and is to be found out now.
    void *object = nullptr;
    {
        const KeptSignal signal(SIGBUS);
        object = dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL);
    }
    auto entry = object ? reinterpret_cast<XnvmeModuleEntry>(dlsym(object, XNVME_MODULE_ENTRY)) : nullptr;
    if (!entry) {
        const char *text = dlerror();
        obstacle =
            "cannot load " + path + ": " + (text ? text : "unknown error of the dynamic linker") +
            ". It must find the libxnvme that it was built with: build rawduck again with the one that is "
            "installed now, or use another engine";
        return nullptr;
    }
    const XnvmeModule *module = entry();
    if (module->version != XNVME_MODULE_VERSION) {
        obstacle = path + " has version " + std::to_string(module->version) +
                   " of the interface between the two, " + "and this build of rawduck needs version " +
                   std::to_string(XNVME_MODULE_VERSION) + ": build both together";
        return nullptr;
    }
    return module;
}

} // namespace

std::string XnvmeModulePath() {
    Dl_info info;
    const bool known = dladdr(reinterpret_cast<const void *>(&XnvmeModulePath), &info) != 0 && info.dli_fname;
    // The main program is known by what its caller typed, which may have been found through PATH.
    std::unique_ptr<char, void (*)(void *)> own(known ? realpath(info.dli_fname, nullptr) : nullptr,
                                                std::free);
    if (!own) {
        own.reset(realpath("/proc/self/exe", nullptr));
    }
    const std::string path = own ? own.get() : "";
    return path.substr(0, path.rfind('/') + 1) + MODULE_FILE;
}

const XnvmeModule *LoadXnvmeModule(const std::string &path, std::string &obstacle) {
    static std::mutex mutex; // guards `loaded`, also while the module is loaded
    static auto &loaded = *new std::map<std::string, const XnvmeModule *>;
    std::lock_guard<std::mutex> guard(mutex);
    const XnvmeModule *&module = loaded[path];
    if (!module) {
        module = Load(path, obstacle);
    }
    return module;
}

const XnvmeModule &RequireXnvmeModule(const std::string &target_name, const std::string &engine) {
    std::string obstacle;
    const XnvmeModule *module = LoadXnvmeModule(XnvmeModulePath(), obstacle);
    if (!module) {
        throw Error(ErrorCode::UNSUPPORTED,
                    target_name + ": engine '" + engine + "' is not available: " + obstacle);
    }
    return *module;
}

} // namespace rawduck

//! In place of NVIDIA's cuFile, for tests of how it is called: reads into what the checker of driver calls takes for a
//! GPU's memory. As there, what is used wrongly ends the process.
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <dlfcn.h>
#include <fstream>
#include <iterator>
#include <string>
#include <unistd.h>

namespace {

struct Error {
    int error, driver;
};

//! Of cufile.h.
struct Description {
    int type;
    union {
        int descriptor;
        void *handle;
    } file;
    const void *operations;
};
constexpr int OPAQUE_DESCRIPTOR = 1, DRIVER_NOT_INITIALIZED = 5001, DRIVER_UNSUPPORTED = 5003;

bool g_open = false;

void Require(bool used_rightly, const char *rule) {
    if (!used_rightly) {
        std::fprintf(stderr, "cuFile's stand-in: %s\n", rule);
        std::abort();
    }
}

bool AllowsCompatibility() {
    const char *path = std::getenv("CUFILE_ENV_PATH_JSON");
    std::ifstream file(path ? path : "");
    const std::string text((std::istreambuf_iterator<char>(file)), std::istreambuf_iterator<char>());
    return text.find("\"allow_compat_mode\": false") == std::string::npos;
}

//! What a test asks for: "compat" has no way past host memory, "crash" ends the process, "hang" does not come back.
bool Behaves(const char *how) {
    const char *wanted = std::getenv("RAWDUCK_TEST_CUFILE_IS");
    return wanted && std::strcmp(wanted, how) == 0;
}

//! The checker's own calls: the device's memory is reached through them alone, in a thread that has its context.
class Driver {
  public:
    Driver() : library_(dlopen(std::getenv("RAWDUCK_TEST_LIBCUDA"), RTLD_NOW)) {
        Require(library_ != nullptr, "there is no driver");
        Call<int(void **, unsigned)>("cuStreamCreate")(&stream_, 1);
    }
    ~Driver() {
        Call<int(void *)>("cuStreamDestroy_v2")(stream_);
        Call<int(void *)>("cuMemFreeHost")(pinned_);
        dlclose(library_);
    }
    Driver(const Driver &) = delete;
    Driver &operator=(const Driver &) = delete;

    void *Pinned(size_t bytes) {
        Require(Call<int(void **, size_t, unsigned)>("cuMemHostAlloc")(&pinned_, bytes, 0) == 0,
                "there is no memory");
        return pinned_;
    }
    void CopyIn(uint64_t device, size_t bytes) const {
        const int begun = Call<int(uint64_t, const void *, size_t, void *)>("cuMemcpyHtoDAsync_v2")(
            device, pinned_, bytes, stream_);
        Require(begun == 0 && Call<int(void *)>("cuStreamSynchronize")(stream_) == 0, "a copy failed");
    }

  private:
    template <typename Function> Function *Call(const char *name) const {
        return reinterpret_cast<Function *>(dlsym(library_, name));
    }

    void *library_;
    void *stream_ = nullptr;
    void *pinned_ = nullptr;
};

} // namespace

extern "C" {

Error cuFileDriverOpen() {
    if (Behaves("crash")) {
        std::abort();
    }
    while (Behaves("hang")) {
        pause();
    }
    g_open = true;
    return {0, 0};
}

Error cuFileDriverClose() {
    Require(g_open, "the driver is closed that is not open");
    g_open = false;
    return {0, 0};
}

Error cuFileHandleRegister(void **handle, Description *description) {
    Require(description->type == OPAQUE_DESCRIPTOR && description->operations == nullptr,
            "a file is described by its descriptor");
    if (!g_open) {
        return {DRIVER_NOT_INITIALIZED, 0};
    }
    if (Behaves("compat") && !AllowsCompatibility()) {
        return {DRIVER_UNSUPPORTED, 0};
    }
    *handle = new int(description->file.descriptor);
    return {0, 0};
}

void cuFileHandleDeregister(void *handle) {
    delete static_cast<int *>(handle);
}

Error cuFileBufRegister(const void *base, size_t bytes, int flags) {
    Require(g_open && bytes > 0 && flags == 0, "memory is registered");
    return {Behaves("compat") ? DRIVER_UNSUPPORTED : 0, 0};
}

Error cuFileBufDeregister(const void *) {
    Require(g_open, "memory is deregistered before the driver is closed");
    return {0, 0};
}

ssize_t cuFileRead(void *handle, void *base, size_t bytes, off_t offset, off_t at) {
    Require(g_open, "it is read without the driver");
    Driver driver;
    const ssize_t done = pread(*static_cast<int *>(handle), driver.Pinned(bytes), bytes, offset);
    if (done > 0) {
        driver.CopyIn(reinterpret_cast<uint64_t>(base) + static_cast<uint64_t>(at),
                      static_cast<size_t>(done));
    }
    return done;
}
}

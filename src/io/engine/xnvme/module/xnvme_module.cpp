//! librawduck_xnvme.so: the only code that sees libxnvme. Built when pkg-config finds it (cmake/xnvme.cmake),
//! loaded at run time by io/engine/xnvme/xnvme_library.cpp.
#include "io/engine/xnvme/module/handles.hpp"

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <fcntl.h>
#include <new>
#include <string>
#include <sys/stat.h>
#include <unistd.h>

// xNVMe changed the layout of its options after 0.7.5 without changing its version or soname. Naming a
// function which only the headers' own generation has makes the dynamic linker refuse the other one.
#if __has_include(<libxnvme_scan.h>)
#define RAWDUCK_XNVME_LIBRARY "xNVMe after "
#define RAWDUCK_XNVME_GENERATION xnvme_scan
#else
#define RAWDUCK_XNVME_LIBRARY "xNVMe "
#define RAWDUCK_XNVME_GENERATION xnvme_be_attr_list_bundled
#endif

namespace rawduck {

namespace {

constexpr uint8_t NVME_WRITE = 0x01, NVME_READ = 0x02;
constexpr size_t ENTRY_BYTES = 64;
static_assert(sizeof(xnvme_spec_cmd) == ENTRY_BYTES &&
                  offsetof(nvme_passthru_cmd64, timeout_ms) == ENTRY_BYTES,
              "a submission queue entry in both");

} // namespace

void SetCommand(xnvme_cmd_ctx &context, const nvme_passthru_cmd64 &command, bool byte_offsets) {
    std::memcpy(static_cast<void *>(&context.cmd), &command, ENTRY_BYTES);
    std::memset(static_cast<void *>(&context.cpl), 0, sizeof context.cpl);
    if (byte_offsets && command.opcode == NVME_READ) {
        context.cmd.common.opcode = XNVME_SPEC_FS_OPC_READ;
    } else if (byte_offsets && command.opcode == NVME_WRITE) {
        context.cmd.common.opcode = XNVME_SPEC_FS_OPC_WRITE;
    }
}

int StatusOf(const xnvme_cmd_ctx &context) {
    return context.cpl.status.sct << 8 | context.cpl.status.sc;
}

namespace {

int Pass(xnvme_cmd_ctx &context, const nvme_passthru_cmd64 &command) {
    void *data = reinterpret_cast<void *>(command.addr); // the kernel's structure holds addresses as numbers
    return xnvme_cmd_pass(&context, data, command.data_len, nullptr, 0);
}

bool IsNamed(const char *opened, const char *wanted) {
    return !wanted || (opened && std::strcmp(opened, wanted) == 0);
}

//! libxnvme opens the path once more, without O_CLOEXEC. A program that this process starts would keep the
//! device busy, and requests of a process that is killed would not be covered by its lock. So what the caller
//! has open takes the place of that descriptor, which is the first number of the backend's state; believed
//! only if it is the file that was opened.
bool UseDescriptor(const xnvme_dev *device, int descriptor) {
    const int fd = *static_cast<const int *>(xnvme_dev_get_be_state(device));
    struct stat opened, wanted;
    const bool same = fstat(fd, &opened) == 0 && fstat(descriptor, &wanted) == 0 &&
                      opened.st_dev == wanted.st_dev && opened.st_ino == wanted.st_ino;
    return same && dup3(descriptor, fd, O_CLOEXEC) == fd;
}

int OpenDevice(const XnvmeOpenOptions *wanted, XnvmeDeviceHandle **device) {
    xnvme_opts options = xnvme_opts_default();
    options.be = "linux"; // after 0.7.5: any of the platform's that has these interfaces
    options.async = wanted->async;
    options.sync = wanted->sync;
    options.rdwr = !wanted->read_only;
    options.rdonly = wanted->read_only;
    options.direct = wanted->byte_offsets; // NVMe commands know no page cache, and their device no O_DIRECT
    const std::string path = "/proc/self/fd/" + std::to_string(wanted->descriptor);
    xnvme_dev *opened = xnvme_dev_open(path.c_str(), &options);
    if (!opened) {
        // Where no backend fits, 0.7.5 leaves an errno that is none.
        const bool real = errno > 0 && errno != ENXIO && errno != ENOSYS;
        return real ? -errno : -ENOTSUP;
    }
    // It opens once more without O_DIRECT when that is
    // refused, and may take other interfaces than those named.
    const xnvme_opts *given = xnvme_dev_get_opts(opened);
    const bool named = IsNamed(given->async, wanted->async) && IsNamed(given->sync, wanted->sync);
    const bool direct = given->direct || !wanted->byte_offsets;
    if (!named || !direct || !UseDescriptor(opened, wanted->descriptor)) {
        xnvme_dev_close(opened);
        return named ? -EINVAL : -ENOTSUP;
    }
    *device = new (std::nothrow) XnvmeDeviceHandle(opened, wanted->byte_offsets);
    if (!*device) {
        xnvme_dev_close(opened);
        return -ENOMEM;
    }
    return 0;
}

void CloseDevice(XnvmeDeviceHandle *device) {
    if (device->buffers) {
        CloseController(device);
        return;
    }
    xnvme_dev_close(device->device);
    delete device;
}

int Run(XnvmeDeviceHandle *device, const nvme_passthru_cmd64 *command, int64_t *bytes) {
    if (device->buffers) {
        return RunIo(device, *command);
    }
    xnvme_cmd_ctx context = xnvme_cmd_ctx_from_dev(device->device);
    SetCommand(context, *command, device->byte_offsets);
    errno = 0; // psync takes it for the error of a short transfer, which has none
    const int result = Pass(context, *command);
    *bytes = static_cast<int64_t>(context.cpl.result);
    const int status = StatusOf(context);
    const bool told_by_device = !device->byte_offsets && (result == 0 || result == -EIO);
    return told_by_device && status != 0 ? status : result;
}

void OnCompletion(xnvme_cmd_ctx *context, void *argument) {
    auto &slot = *static_cast<XnvmeQueueHandle::Slot *>(argument);
    XnvmeQueueHandle &queue = *slot.queue;
    if (!slot.in_flight) {
        return; // given up
    }
    const bool failed = xnvme_cmd_ctx_cpl_status(context) != 0;
    // Those to the kernel fill it with what may be an errno.
    const int status = queue.device->buffers ? StatusOf(*context) : 0;
    if (!failed) {
        slot.bounce.CopyBack();
    }
    GiveBounce(queue, slot.bounce);
    slot.in_flight = false;
    queue.done.push_back({slot.owner, static_cast<int64_t>(context->cpl.result), failed, status});
    queue.idle.push_back(&slot); // within the capacity
    xnvme_queue_put_cmd_ctx(queue.queue, context);
}

//! `queue` keeps its memory when this returns false.
bool TakeOwnBuffer(XnvmeQueueHandle &queue) {
    if (!queue.device->buffers) {
        return true;
    }
    queue.own_buffer = queue.device->buffers->Take(false);
    return queue.own_buffer != nullptr;
}

void GiveOwnBuffer(XnvmeQueueHandle &queue) {
    if (queue.own_buffer) {
        queue.device->buffers->Give(queue.own_buffer, false);
    }
}

//! The library's lock is for controllers only: nothing else shares state there.
std::unique_lock<std::mutex> LockLibrary(const XnvmeDeviceHandle &device) {
    return device.buffers ? std::unique_lock<std::mutex>(LibraryMutex()) : std::unique_lock<std::mutex>();
}

int InitQueue(XnvmeQueueHandle &queue, uint32_t capacity) {
    if (!TakeOwnBuffer(queue)) {
        return -ENOMEM;
    }
    int result = 0;
    {
        const auto lock = LockLibrary(*queue.device);
        result = xnvme_queue_init(queue.device->device, static_cast<uint16_t>(capacity), 0, &queue.queue);
    }
    if (result != 0) {
        GiveOwnBuffer(queue);
    }
    return result > 0 ? -EIO : result;
}

int CreateQueue(XnvmeDeviceHandle *device, uint32_t capacity, XnvmeQueueHandle **created) {
    if (device->lost) {
        return -ENODEV;
    }
    try {
        auto queue = std::make_unique<XnvmeQueueHandle>();
        queue->device = device;
        queue->slots.resize(capacity);
        queue->idle.reserve(capacity);
        queue->done.reserve(capacity);
        for (auto &slot : queue->slots) {
            slot.queue = queue.get();
            queue->idle.push_back(&slot);
        }
        const int result = InitQueue(*queue, capacity);
        if (result == 0) {
            *created = queue.release();
        }
        return result;
    } catch (const std::bad_alloc &) {
        return -ENOMEM;
    }
}

void DestroyQueue(XnvmeQueueHandle *queue) {
    if (queue->device->lost) {
        return; // its commands may still end, some time
    }
    {
        const auto lock = LockLibrary(*queue->device);
        xnvme_queue_term(queue->queue); // it frees the queue whatever it returns, and nothing is in flight
    }
    GiveOwnBuffer(*queue);
    delete queue;
}

int Submit(XnvmeQueueHandle *queue, const nvme_passthru_cmd64 *command, void *owner) {
    if (queue->device->lost) {
        return -ENODEV;
    }
    xnvme_cmd_ctx *context = queue->idle.empty() ? nullptr : xnvme_queue_get_cmd_ctx(queue->queue);
    if (!context) {
        return -EAGAIN;
    }
    XnvmeQueueHandle::Slot *slot = queue->idle.back();
    nvme_passthru_cmd64 sent = *command;
    int result = TakeBounce(*queue, slot->bounce, sent);
    if (result == 0) {
        slot->owner = owner;
        slot->in_flight = true;
        SetCommand(*context, sent, queue->device->byte_offsets);
        xnvme_cmd_ctx_set_cb(context, OnCompletion, slot);
        result = Pass(*context, sent);
    }
    if (result != 0) {
        slot->in_flight = false;
        GiveBounce(*queue, slot->bounce);
        xnvme_queue_put_cmd_ctx(queue->queue, context);
        return result == -EBUSY ? -EAGAIN : result < 0 ? result : -EIO;
    }
    queue->idle.pop_back();
    return 0;
}

//! What a poke may say without the controller being lost.
bool IsPassing(int result) {
    return result >= 0 || result == -EINTR || result == -EAGAIN || result == -EBUSY || result == -ENOMEM;
}

int Poke(XnvmeQueueHandle *queue, XnvmeCompletion *completions, uint32_t max) {
    int result = 0;
    if (queue->done.empty() && max > 0) { // 0 would mean all
        result = xnvme_queue_poke(queue->queue, max);
    }
    if (queue->done.empty() && queue->device->buffers && (!IsPassing(result) || queue->device->lost)) {
        GiveUp(*queue);
    }
    // What was found before an error counts; the error comes again.
    const auto count = std::min<size_t>(max, queue->done.size());
    std::copy_n(queue->done.begin(), count, completions);
    queue->done.erase(queue->done.begin(), queue->done.begin() + static_cast<std::ptrdiff_t>(count));
    return count > 0 || result >= 0 ? static_cast<int>(count) : result;
}

//! The library's own version, and what it is beyond it.
const char *LibraryName() {
    static const auto &name =
        *new const std::string(RAWDUCK_XNVME_LIBRARY + std::to_string(xnvme_ver_major()) + "." +
                               std::to_string(xnvme_ver_minor()) + "." + std::to_string(xnvme_ver_patch()));
    return name.c_str();
}

[[maybe_unused]] __attribute__((used)) const auto generation = &RAWDUCK_XNVME_GENERATION;

} // namespace
} // namespace rawduck

extern "C" __attribute__((visibility("default"))) const rawduck::XnvmeModule *rawduck_xnvme_module() {
    using namespace rawduck;
    static const XnvmeModule module = {
        XNVME_MODULE_VERSION, LibraryName(), OpenDevice, HasBackend, OpenController,
        SetTransferBytes,     CloseDevice,   Run,        RunAdmin,   CreateQueue,
        DestroyQueue,         Submit,        Poke};
    return &module;
}

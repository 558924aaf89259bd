//! Controllers that a backend of libxnvme drives in this process: SPDK.
#include "io/engine/xnvme/module/handles.hpp"

#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <new>
#include <sched.h>
#include <string>

namespace rawduck {
namespace {

//! Of Identify and other admin commands.
constexpr size_t PAGE_BYTES = 4096;
constexpr uint32_t US_PER_MS = 1000;

//! SPDK ties the thread that starts it to the first processor, and with it all that this thread starts later.
class KeptAffinity {
  public:
    KeptAffinity() : known_(sched_getaffinity(0, sizeof mask_, &mask_) == 0) {}
    ~KeptAffinity() {
        if (known_) {
            sched_setaffinity(0, sizeof mask_, &mask_);
        }
    }
    KeptAffinity(const KeptAffinity &) = delete;
    KeptAffinity &operator=(const KeptAffinity &) = delete;

  private:
    cpu_set_t mask_;
    const bool known_;
};

//! What libxnvme says that it was built with.
std::string Configuration() {
    char *text = nullptr;
    size_t bytes = 0;
    FILE *stream = open_memstream(&text, &bytes);
    if (!stream) {
        return "";
    }
#if __has_include(<libxnvme_scan.h>)
    xnvme_libconf_fpr(stream, xnvme_libconf_get(), XNVME_PR_DEF);
#else
    xnvme_libconf_fpr(stream, XNVME_PR_DEF);
#endif
    std::fclose(stream);
    std::string configuration = text ? text : "";
    std::free(text);
    return configuration;
}

//! The command was not taken, so nothing is in flight.
bool IsRefusal(int result) {
    return result == -ENOMEM || result == -EINVAL || result == -EBUSY || result == -ENOSYS;
}

int RunOn(XnvmeDeviceHandle &device, nvme_passthru_cmd64 &command, decltype(xnvme_cmd_pass) *pass) {
    std::lock_guard<std::mutex> guard(device.run_mutex);
    if (device.lost) {
        return -ENODEV;
    }
    if (command.data_len > device.buffers->Bytes()) {
        return -EMSGSIZE;
    }
    nvme_passthru_cmd64 sent = command;
    const Bounce bounce = command.data_len > 0 ? Bounce(device.run_buffer, sent) : Bounce();
    xnvme_cmd_ctx context = xnvme_cmd_ctx_from_dev(device.device);
    SetCommand(context, sent, false);
    const int result = pass(&context, bounce.buffer, bounce.bytes, nullptr, 0);
    const int status = StatusOf(context);
    if (status != 0) {
        return status;
    }
    if (result != 0) {
        device.lost = !IsRefusal(result);
        return device.lost ? -ENODEV : result;
    }
    bounce.CopyBack();
    command.result = static_cast<uint32_t>(context.cpl.result);
    return 0;
}

} // namespace

bool HasBackend(const char *backend) {
    return std::strcmp(backend, "spdk") == 0 &&
           Configuration().find("XNVME_BE_SPDK_ENABLED") != std::string::npos;
}

int OpenController(const XnvmeControllerOptions *wanted, XnvmeDeviceHandle **device) {
    xnvme_opts options = xnvme_opts_default();
    options.be = wanted->backend;
    options.nsid = wanted->namespace_id;
    options.rdwr = 1;
    options.command_timeout = options.admin_timeout = wanted->timeout_ms * US_PER_MS;
    std::unique_lock<std::mutex> library(LibraryMutex());
    xnvme_dev *opened = nullptr;
    {
        const KeptAffinity affinity;
        errno = 0;
        opened = xnvme_dev_open(wanted->address, &options);
    }
    if (!opened) {
        return errno > 0 ? -errno : -ENXIO;
    }
    auto *handle = new (std::nothrow) XnvmeDeviceHandle(opened, false);
    if (handle) {
        handle->buffers.reset(new (std::nothrow) DmaBuffers(opened, wanted->buffer_bytes));
    }
    if (!handle || !handle->buffers) {
        xnvme_dev_close(opened);
        delete handle;
        return -ENOMEM;
    }
    library.unlock();
    if (SetTransferBytes(handle, PAGE_BYTES) != 0) {
        CloseController(handle);
        return -ENOMEM;
    }
    *device = handle;
    return 0;
}

void CloseController(XnvmeDeviceHandle *device) {
    if (device->lost) {
        return; // it may still transfer to that memory
    }
    if (device->run_buffer) {
        device->buffers->Give(device->run_buffer, false);
    }
    device->buffers.reset();
    {
        std::lock_guard<std::mutex> library(LibraryMutex());
        xnvme_dev_close(device->device);
    }
    delete device;
}

int SetTransferBytes(XnvmeDeviceHandle *device, uint32_t bytes) {
    if (device->run_buffer) {
        device->buffers->Give(device->run_buffer, false);
    }
    device->buffers->SetBytes(bytes > PAGE_BYTES ? bytes : PAGE_BYTES);
    device->run_buffer = device->buffers->Take(false);
    return device->run_buffer ? 0 : -ENOMEM;
}

int RunIo(XnvmeDeviceHandle *device, nvme_passthru_cmd64 command) {
    return RunOn(*device, command, xnvme_cmd_pass);
}

int RunAdmin(XnvmeDeviceHandle *device, nvme_passthru_cmd64 *command) {
    return RunOn(*device, *command, xnvme_cmd_pass_admin);
}

int TakeBounce(XnvmeQueueHandle &queue, Bounce &bounce, nvme_passthru_cmd64 &command) {
    bounce = Bounce();
    if (!queue.device->buffers || command.data_len == 0) {
        return 0;
    }
    if (command.data_len > queue.device->buffers->Bytes()) {
        return -EMSGSIZE;
    }
    void *const buffer = queue.own_buffer_idle ? queue.own_buffer : queue.device->buffers->Take(true);
    if (!buffer) {
        return -EAGAIN;
    }
    queue.own_buffer_idle = queue.own_buffer_idle && buffer != queue.own_buffer;
    bounce = Bounce(buffer, command);
    return 0;
}

void GiveBounce(XnvmeQueueHandle &queue, const Bounce &bounce) {
    if (!bounce.buffer) {
        return;
    }
    if (bounce.buffer == queue.own_buffer) {
        queue.own_buffer_idle = true;
    } else {
        queue.device->buffers->Give(bounce.buffer, true);
    }
}

void GiveUp(XnvmeQueueHandle &queue) {
    queue.device->lost = true;
    for (XnvmeQueueHandle::Slot &slot : queue.slots) {
        if (slot.in_flight) {
            slot.in_flight = false;
            queue.done.push_back({slot.owner, 0, true, 0});
        }
    }
}

} // namespace rawduck

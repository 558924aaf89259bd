//! What librawduck_xnvme.so offers: libxnvme behind a table of C functions, so that only that object depends
//! on the library and no exception or C++ type crosses between the two. Commands are the kernel's
//! nvme_passthru_cmd64, whose first 64 bytes are an NVMe submission queue entry.
#pragma once

#include <cstdint>
#include <linux/nvme_ioctl.h>

namespace rawduck {

//! Raised with every change of this file.
constexpr uint32_t XNVME_MODULE_VERSION = 3;
constexpr const char *XNVME_MODULE_ENTRY = "rawduck_xnvme_module";

struct XnvmeDeviceHandle;
struct XnvmeQueueHandle;

struct XnvmeOpenOptions {
    int descriptor;    //!< of the open file or device; the library's I/O goes through it, and keeps its lock
    const char *async; //!< xNVMe's name of the asynchronous interface; nullptr: only Run is used
    const char *sync;  //!< of the synchronous one, for Run
    bool read_only;
    //! Dwords 10 and 11 of a read or write hold a byte offset instead of an LBA: files and block devices.
    bool byte_offsets;
};

//! A controller that libxnvme drives in this process.
struct XnvmeControllerOptions {
    const char *backend; //!< "spdk"
    const char *address; //!< of the PCI function, which vfio-pci has
    uint32_t namespace_id;
    uint32_t timeout_ms;   //!< of a command, where the backend counts
    uint64_t buffer_bytes; //!< of all buffers for data together, but for the one that each queue has
};

struct XnvmeCompletion {
    void *owner;
    int64_t result; //!< bytes, where the interface counts them
    bool failed;
    //! Of what failed: the NVMe status of a controller's command. 0: what failed is not known, because xNVMe's
    //! interfaces to the kernel fold errno and NVMe status into one byte.
    int status;
};

struct XnvmeModule {
    uint32_t version;    //!< XNVME_MODULE_VERSION, as compiled
    const char *library; //!< such as "xNVMe 0.7.5"

    //! 0 or a negative errno; -ENOTSUP where this libxnvme does not have the interface for such a path, and
    //! -EINVAL where it would not open it for direct I/O, or its descriptor cannot be replaced.
    int (*open)(const XnvmeOpenOptions *options, XnvmeDeviceHandle **device);
    //! Whether this libxnvme was built with that backend.
    bool (*has_backend)(const char *backend);
    //! Data of its commands lies anywhere and is copied, because a backend transfers to and from its own memory
    //! only. 0 or a negative errno, -ENXIO where the backend does not get the controller or the namespace.
    int (*open_controller)(const XnvmeControllerOptions *options, XnvmeDeviceHandle **device);
    //! The longest command of a controller from now on, before the first queue. 0 or -ENOMEM.
    int (*set_transfer_bytes)(XnvmeDeviceHandle *device, uint32_t bytes);
    void (*close)(XnvmeDeviceHandle *device);
    //! Runs a command on the calling thread. 0, a positive NVMe status
    //! (bits 0-10 of target/nvme/nvme_status.hpp) or a negative errno;
    //! `bytes` is what was moved, where the interface counts it.
    //! Of a controller: -ENODEV for this and all that follows once a
    //! command got no answer. It may still transfer to memory of the
    //! backend, which therefore is not used again.
    int (*run)(XnvmeDeviceHandle *device, const nvme_passthru_cmd64 *command, int64_t *bytes);
    //! The same with an admin command to a controller, which fills in its result.
    int (*run_admin)(XnvmeDeviceHandle *device, nvme_passthru_cmd64 *command);

    //! `capacity` is a power of two up to XNVME_MAX_CAPACITY. A queue is used by one thread at a time.
    int (*create_queue)(XnvmeDeviceHandle *device, uint32_t capacity, XnvmeQueueHandle **queue);
    void (*destroy_queue)(XnvmeQueueHandle *queue);
    //! 0, -EAGAIN when the queue is full, or another negative errno: then the command was not taken.
    int (*submit)(XnvmeQueueHandle *queue, const nvme_passthru_cmd64 *command, void *owner);
    //! Sends what was submitted, and hands out up to `max` completions
    //! without waiting. Their number, or a negative errno.
    int (*poke)(XnvmeQueueHandle *queue, XnvmeCompletion *completions, uint32_t max);
};

constexpr uint32_t XNVME_MAX_CAPACITY = 2048;

using XnvmeModuleEntry = const XnvmeModule *(*)();

} // namespace rawduck

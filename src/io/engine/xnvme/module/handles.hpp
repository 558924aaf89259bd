//! What librawduck_xnvme.so keeps of devices and queues.
#pragma once

#include "io/engine/xnvme/module/dma_buffers.hpp"
#include "io/engine/xnvme/xnvme_module.hpp"

#include <atomic>
#include <libxnvme.h>
#include <memory>
#include <mutex>
#include <vector>

namespace rawduck {

struct XnvmeDeviceHandle {
    XnvmeDeviceHandle(xnvme_dev *opened, bool offsets) : device(opened), byte_offsets(offsets) {}

    xnvme_dev *const device;
    const bool byte_offsets;
    std::unique_ptr<DmaBuffers> buffers; //!< of a controller; null: the kernel drives it
    std::mutex run_mutex;                //!< of a controller: one command at a time that is waited for
    void *run_buffer = nullptr;          //!< for its data
    std::atomic<bool> lost{false};       //!< a controller has not answered
};

struct XnvmeQueueHandle {
    //! One for each command in flight, because a context has room for a single pointer.
    struct Slot {
        XnvmeQueueHandle *queue;
        void *owner = nullptr;
        Bounce bounce = {};
        bool in_flight = false;
    };
    XnvmeDeviceHandle *device;
    xnvme_queue *queue;
    std::vector<Slot> slots;
    std::vector<Slot *> idle;
    std::vector<XnvmeCompletion> done; //!< found by a poke and not handed out yet
    void *own_buffer = nullptr;        //!< of a controller: without it a queue might never get one
    bool own_buffer_idle = true;
};

bool HasBackend(const char *backend);
int OpenController(const XnvmeControllerOptions *wanted, XnvmeDeviceHandle **device);
void CloseController(XnvmeDeviceHandle *device);
int SetTransferBytes(XnvmeDeviceHandle *device, uint32_t bytes);
int RunIo(XnvmeDeviceHandle *device, nvme_passthru_cmd64 command);
int RunAdmin(XnvmeDeviceHandle *device, nvme_passthru_cmd64 *command);

//! Of one command in a queue. 0, or a negative errno: -EAGAIN when there is no buffer for its data now.
int TakeBounce(XnvmeQueueHandle &queue, Bounce &bounce, nvme_passthru_cmd64 &command);
void GiveBounce(XnvmeQueueHandle &queue, const Bounce &bounce);
//! The controller does not answer: what is in flight ends, and its contexts and buffers are never used again.
void GiveUp(XnvmeQueueHandle &queue);

//! Fills in the command, and clears what an earlier one has left in the
//! context: xNVMe's interfaces set a completion's status only when a command
//! fails, and its ioctl takes the completion's first bytes for a timeout.
void SetCommand(xnvme_cmd_ctx &context, const nvme_passthru_cmd64 &command, bool byte_offsets);
//! Bits 0-10 of target/nvme/nvme_status.hpp.
int StatusOf(const xnvme_cmd_ctx &context);

} // namespace rawduck

//! What a driver and an NVMe controller exchange: registers, queue entries, opcodes. Names and offsets are those
//! of the NVM Express Base Specification 2.0, chapters 3 and 5.
#pragma once

#include <cstdint>

namespace rawduck {

//! Offsets in BAR0, bytes.
constexpr uint32_t REGISTER_CAP = 0x00, REGISTER_CC = 0x14, REGISTER_CSTS = 0x1C, REGISTER_AQA = 0x24,
                   REGISTER_ASQ = 0x28, REGISTER_ACQ = 0x30, REGISTER_DOORBELLS = 0x1000;

//! Controller Configuration: enabled, entries of 64 and 16 bytes; a normal shutdown.
constexpr uint32_t CC_ENABLE = 1, CC_ENTRY_SIZES = 6 << 16 | 4 << 20;
constexpr uint32_t CC_SHUTDOWN_MASK = 3 << 14, CC_SHUTDOWN_NORMAL = 1 << 14;
//! Controller Status: ready, fatal, shutdown complete.
constexpr uint32_t CSTS_READY = 1, CSTS_FATAL = 2, CSTS_SHUTDOWN_MASK = 3 << 2, CSTS_SHUTDOWN_DONE = 2 << 2;
//! What every register of a function reads that has left the bus.
constexpr uint32_t REGISTER_GONE = UINT32_MAX;

//! Controller Capabilities.
struct ControllerCapabilities {
    uint64_t value = 0;
    uint32_t QueueEntriesMax() const { return static_cast<uint32_t>(value & 0xFFFF) + 1; }
    uint64_t ReadyTimeoutMs() const { return ((value >> 24 & 0xFF) + 1) * 500; }
    uint32_t DoorbellStride() const { return 4u << (value >> 32 & 0xF); } //!< bytes
    bool HasNvmCommandSet() const { return (value >> 37 & 1) != 0; }
    uint64_t PageBytesMin() const { return uint64_t(4096) << (value >> 48 & 0xF); }
};

constexpr uint8_t ADMIN_CREATE_SUBMISSION_QUEUE = 0x01, ADMIN_DELETE_COMPLETION_QUEUE = 0x04,
                  ADMIN_CREATE_COMPLETION_QUEUE = 0x05, ADMIN_SET_FEATURES = 0x09,
                  ADMIN_DOORBELL_BUFFER_CONFIG = 0x7C;
constexpr uint32_t FEATURE_NUMBER_OF_QUEUES = 0x07;
//! Of Create I/O Submission and Completion Queue.
constexpr uint32_t QUEUE_CONTIGUOUS = 1, QUEUE_INTERRUPTS = 2;

//! Status codes, type << 8 | code, with "do not retry" in bit 14.
constexpr uint16_t STATUS_ABORTED_BY_HOST = 0x371, STATUS_HOST_PATH_ERROR_FINAL = 0x4370;

struct SubmissionEntry {
    uint8_t opcode, flags;
    uint16_t command_id;
    uint32_t namespace_id;
    uint32_t cdw2, cdw3;
    uint64_t metadata;
    uint64_t data[2]; //!< PRP entries, or one SGL descriptor
    uint32_t cdw10, cdw11, cdw12, cdw13, cdw14, cdw15;
};
static_assert(sizeof(SubmissionEntry) == 64, "as the controller reads it");

struct CompletionEntry {
    uint32_t result[2];
    uint16_t queue_head, queue_id;
    uint16_t command_id;
    uint16_t status; //!< bit 0 is the phase
};
static_assert(sizeof(CompletionEntry) == 16, "as the controller writes it");

} // namespace rawduck

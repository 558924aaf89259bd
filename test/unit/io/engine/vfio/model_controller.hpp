//! An NVMe controller in the memory of a test: registers, queues, a medium, and ways to fail.
#pragma once

#include "io/engine/vfio/nvme_registers.hpp"
#include "io/engine/vfio/pci_function.hpp"

#include <map>
#include <mutex>
#include <vector>

namespace rawduck {

//! What a test sets and looks at. Outlives the controller, which the driver under test owns.
struct ModelState {
    static constexpr uint32_t LBA_BYTES = 512;
    static constexpr uint64_t CAPACITY = 4 << 20;

    // How it is built.
    uint16_t entries_max = 32;
    uint16_t queues_max = 4;
    uint32_t interrupts_max = 5;
    uint8_t mdts = 5; //!< 128 KiB
    size_t mappings_max = SIZE_MAX;
    bool sgl = true, shadow_doorbells = true;
    uint32_t submission_queues_max = UINT32_MAX; //!< makes completion queues beyond, and no submission queues

    // How it fails.
    bool holds = false;                //!< takes commands of I/O queues, and carries none out before Release
    uint64_t held_lba = UINT64_MAX;    //!< commands that begin there, once
    uint32_t holds_administration = 0; //!< so many commands of the administrative queue
    bool ignores_disable = false;      //!< CSTS.RDY stays
    bool ignores_reset = false;
    bool absent = false;           //!< registers cannot be read
    bool reads_ones = false;       //!< as of a device that has left the bus
    bool reads_zero = false;       //!< as behind a link that is lost
    bool fatal = false;            //!< CSTS.CFS, until it is disabled
    bool is_reset = false;         //!< by somebody else, with the next look at it
    bool starts_never = false;     //!< does not become ready
    bool wrong_identifier = false; //!< completes what it was not given
    bool refuses_shadow_doorbells = false, refuses_deletion = false;
    std::map<uint64_t, uint16_t> status_of_lba;

    std::mutex mutex; //!< guards what follows
    std::vector<char> medium = std::vector<char>(CAPACITY);
    //! Transfers to what is not mapped, mappings of what is cut off or was not mapped, and doorbells of what is closed.
    uint64_t faults = 0;
    uint64_t enabled = 0, resets = 0, cut_off = 0, closed = 0, shutdowns = 0, lists = 0, blocks = 0;
    uint64_t ever_held = 0; //!< commands that were kept, whatever became of them
    uint64_t deleted = 0;   //!< completion queues
    int removal = -1;       //!< eventfd
};

class ModelController final : public PciFunction {
  public:
    explicit ModelController(ModelState &state);
    ~ModelController() override;

    const std::string &Address() const override { return address_; }
    std::optional<uint32_t> Read32(uint32_t offset) override;
    bool Write32(uint32_t offset, uint32_t value) override;
    void RingDoorbell(uint32_t offset, uint32_t value) override;
    uint64_t MappingsLeft() override;
    std::vector<IovaRange> IovaRanges() override { return {{0, (uint64_t(1) << 39) - 1}}; }
    int MapMemory(void *memory, uint64_t bytes, uint64_t iova) override;
    void UnmapMemory(uint64_t iova, uint64_t bytes) override;
    bool Reset() override;
    void StopDma() override;
    std::vector<int> EnableInterrupts(uint32_t count) override;
    uint32_t InterruptsMax() override { return state_.interrupts_max; }
    int RemovalDescriptor() override { return state_.removal; }
    void Close() override;

    //! Carries out what it holds: late, if it was disabled meanwhile and does not mind.
    void Release();
    size_t Held();
    //! Completion queues that it has, but for the administrative one.
    size_t CompletionQueues();

  private:
    struct Rings {
        uint64_t submissions = 0, completions = 0;
        uint32_t entries = 0, head = 0, tail = 0, completion_tail = 0;
        bool phase = true, interrupts = false;
    };
    struct Taken {
        uint32_t queue;
        SubmissionEntry entry;
    };

    void Disable();
    void Fetch(uint32_t queue);
    void CarryOut(const Taken &taken);
    uint16_t Administer(const SubmissionEntry &entry, uint64_t &result);
    uint16_t Transfer(const SubmissionEntry &entry);
    bool Move(uint64_t iova, char *bytes, uint64_t length, bool to_memory);
    void Post(uint32_t queue, const SubmissionEntry &entry, uint16_t status, uint64_t result);

    ModelState &state_;
    const std::string address_ = "0000:00:00.0";
    uint32_t configuration_ = 0, status_ = 0, entries_ = 0;
    uint64_t submissions_ = 0, completions_ = 0, shadow_ = 0, events_ = 0;
    std::map<uint32_t, Rings> rings_;
    std::map<uint64_t, std::pair<char *, uint64_t>> mappings_;
    std::vector<Taken> held_;
    std::vector<int> interrupts_;
    uint32_t interrupts_enabled_ = 0; //!< a reset takes them
    bool open_ = true, is_cut_off_ = false;
};

} // namespace rawduck

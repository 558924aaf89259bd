#include "io/engine/vfio/dma/dma_space.hpp"

#include "common/error.hpp"
#include "common/invariant.hpp"
#include "common/units.hpp"

#include <algorithm>
#include <cerrno>
#include <iterator>
#include <mutex>
#include <new>
#include <sys/mman.h>

namespace rawduck {
namespace {

//! Memory of at least that size is mapped to a multiple of it, so that the IOMMU can use a huge page.
constexpr uint64_t HUGE_BYTES = 2 * MIB;

//! Mappings that a window leaves to queues and copies, without which commands cannot run; half, where there are few.
constexpr uint64_t LEFT_MAPPINGS = 4096;

} // namespace

DmaSpace::DmaSpace(PciFunction &function) : function_(function), space_(function.IovaRanges()) {}

DmaSpace::~DmaSpace() {
    if (window_) {
        StableMemory::Unwatch(*this);
    }
}

bool DmaSpace::OpenWindow(char *begin, uint64_t bytes, SpareMemory &spare, uint64_t spare_bytes_max) {
    const uint64_t mappings = function_.MappingsLeft();
    {
        std::lock_guard<std::shared_mutex> guard(mutex_);
        RAWDUCK_INVARIANT(!window_, "there is one window");
        const auto iova = space_.Take(bytes, HUGE_BYTES);
        if (!iova) {
            return false;
        }
        const DmaWindow::Limits limits = {spare, spare_bytes_max,
                                          mappings - std::min(mappings / 2, LEFT_MAPPINGS)};
        window_ = std::make_unique<DmaWindow>(function_, begin, bytes, *iova, limits);
    }
    StableMemory::Watch(*this); // nothing is mapped before anybody could give it back
    return true;
}

void DmaSpace::PagesGo(char *begin, uint64_t bytes, uint64_t, StableMemory::Afterwards &) noexcept {
    std::lock_guard<std::shared_mutex> guard(mutex_);
    if (!abandoned_ && window_->Contains(begin)) {
        window_->Unmap(begin, bytes);
    }
}

std::optional<uint64_t> DmaSpace::Reach(const void *memory, uint64_t bytes) {
    const auto found = Find(memory, bytes);
    if (found || !window_) {
        return found;
    }
    std::lock_guard<std::shared_mutex> guard(mutex_);
    return !abandoned_ && window_->MayReach(memory) ? window_->Reach(memory, bytes) : std::nullopt;
}

uint64_t DmaSpace::WindowBytes() const {
    std::shared_lock<std::shared_mutex> guard(mutex_);
    return window_ && !abandoned_ ? window_->MappedBytes() : 0;
}

int DmaSpace::Register(void *memory, uint64_t bytes) {
    const auto address = reinterpret_cast<uintptr_t>(memory);
    RAWDUCK_INVARIANT(IsAligned(address, PAGE_BYTES) && IsAligned(bytes, PAGE_BYTES) && bytes > 0,
                      "memory is mapped in pages");
    std::lock_guard<std::shared_mutex> guard(mutex_);
    const auto iova = space_.Take(bytes, bytes >= HUGE_BYTES ? HUGE_BYTES : PAGE_BYTES);
    if (!iova) {
        return ENOSPC;
    }
    // Whoever wants memory for a command to a function that was abandoned shall get so far as to be told why that fails.
    const int error_number = abandoned_ ? 0 : function_.MapMemory(memory, bytes, *iova);
    if (error_number != 0) {
        space_.Give(*iova, bytes);
        return error_number;
    }
    mappings_[address] = {bytes, *iova};
    return 0;
}

void DmaSpace::Unregister(void *memory) {
    std::lock_guard<std::shared_mutex> guard(mutex_);
    const auto mapping = mappings_.find(reinterpret_cast<uintptr_t>(memory));
    RAWDUCK_INVARIANT(mapping != mappings_.end(), "what is unregistered was registered");
    if (!abandoned_) {
        function_.UnmapMemory(mapping->second.iova, mapping->second.bytes);
    }
    space_.Give(mapping->second.iova, mapping->second.bytes);
    mappings_.erase(mapping);
}

std::optional<uint64_t> DmaSpace::Find(const void *memory, uint64_t bytes) const {
    return Lookup(*this).Find(memory, bytes);
}

std::optional<uint64_t> DmaSpace::FindLocked(const void *memory, uint64_t bytes) const {
    const auto address = reinterpret_cast<uintptr_t>(memory);
    if (window_ && window_->Contains(memory)) {
        return abandoned_ ? std::nullopt : window_->Find(memory, bytes);
    }
    auto behind = mappings_.upper_bound(address);
    if (behind == mappings_.begin()) {
        return std::nullopt;
    }
    const auto &[first, mapping] = *std::prev(behind);
    const uint64_t offset = address - first;
    if (offset >= mapping.bytes || mapping.bytes - offset < bytes) {
        return std::nullopt;
    }
    return mapping.iova + offset;
}

void DmaSpace::Abandon() {
    std::lock_guard<std::shared_mutex> guard(mutex_);
    if (!abandoned_) {
        function_.StopDma();
        abandoned_ = true;
        if (window_) {
            window_->Forget();
        }
    }
}

std::string DmaErrorText(int error_number) {
    const std::string text = ErrnoText(error_number);
    switch (error_number) {
    case ENOMEM:
    case EPERM:
        return "no more memory may be locked for the device (" + text +
               "); raise the limit of locked memory to 64 MiB or more (ulimit -l 65536, or LimitMEMLOCK= of "
               "the service), or give the process CAP_IPC_LOCK";
    case ENOSPC:
        return "the IOMMU has no room for one more mapping (" + text +
               "); raise dma_entry_limit of the module vfio_iommu_type1";
    default:
        return text + "; look into the kernel log (dmesg)";
    }
}

DmaMemory::DmaMemory(DmaSpace &space, uint64_t bytes, const std::string &name)
    : space_(space), bytes_(AlignUp(bytes, PAGE_BYTES)) {
    void *mapped = mmap(nullptr, bytes_, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (mapped == MAP_FAILED) {
        throw std::bad_alloc();
    }
    data_ = static_cast<char *>(mapped);
    // Otherwise fork would copy what is locked, and a child has no use for it.
    madvise(mapped, bytes_, MADV_DONTFORK);
    const int error_number = space_.Register(mapped, bytes_);
    if (error_number != 0) {
        munmap(mapped, bytes_);
        const bool limit = error_number == ENOMEM || error_number == EPERM;
        throw Error(limit ? ErrorCode::PERMISSION : ErrorCode::IO,
                    name + ": cannot map memory for the device: " + DmaErrorText(error_number));
    }
    iova_ = *space_.Find(mapped, bytes_);
}

DmaMemory::~DmaMemory() {
    space_.Unregister(data_);
    munmap(data_, bytes_);
}

} // namespace rawduck

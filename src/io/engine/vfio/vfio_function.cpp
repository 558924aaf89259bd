#include "io/engine/vfio/vfio_function.hpp"

#include "common/error.hpp"
#include "common/invariant.hpp"
#include "common/units.hpp"
#include "io/engine/vfio/dma/dma_space.hpp"
#include "io/engine/vfio/nvme_registers.hpp"
#include "io/engine/vfio/vfio_access.hpp"
#include "target/system/locked_descriptors.hpp"
#include "target/system/open_error.hpp"

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <fcntl.h>
#include <linux/pci_regs.h>
#include <linux/vfio.h>
#include <sys/eventfd.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <unistd.h>

namespace rawduck {
namespace {

//! What VFIO_IOMMU_GET_INFO has to say, with its list of address ranges.
constexpr size_t INFO_BYTES = 4096;
//! Without such a list, as kernels before Linux 5.4: what every IOMMU has.
constexpr uint64_t NARROW_LAST = (uint64_t(1) << 39) - 1;

vfio_region_info RegionInfo(int device, uint32_t index) {
    vfio_region_info info = {};
    info.argsz = sizeof info;
    info.index = index;
    if (ioctl(device, VFIO_DEVICE_GET_REGION_INFO, &info) != 0) {
        info.size = 0;
    }
    return info;
}

} // namespace

VfioFunction::OwnDescriptor::OwnDescriptor(int fd) : fd_(fd) {
    if (fd_ >= 0) {
        RegisterLocked(fd_);
    }
}

VfioFunction::OwnDescriptor &VfioFunction::OwnDescriptor::operator=(OwnDescriptor &&other) noexcept {
    std::swap(fd_, other.fd_);
    return *this;
}

void VfioFunction::OwnDescriptor::Close() {
    if (fd_ >= 0) {
        UnregisterLocked(fd_);
        close(fd_);
        fd_ = -1;
    }
}

VfioFunction::VfioFunction(const std::string &address, const std::string &name)
    : address_(address), name_(name) {
    OpenContainer();
    OpenGroup();
    OpenDevice();
    MapRegisters();
    if (!SetBusMaster(true)) {
        throw Error(ErrorCode::IO, name_ + ": the PCI function " + address_ +
                                       " does not take its configuration; look into the kernel log (dmesg)");
    }
    AskForRemoval();
}

VfioFunction::~VfioFunction() {
    Close();
}

void VfioFunction::Close() {
    if (registers_) {
        munmap(const_cast<char *>(registers_), registers_bytes_);
        registers_ = nullptr;
    }
    // The kernel resets the function with the last descriptor of it.
    device_.Close();
    group_.Close();
    container_.Close();
}

void VfioFunction::OpenContainer() {
    container_ = OwnDescriptor(OpenAboveStreams("/dev/vfio/vfio", O_RDWR));
    if (container_.Get() < 0) {
        ThrowVfioOpenError(name_, address_, "/dev/vfio/vfio", errno);
    }
    if (ioctl(container_.Get(), VFIO_GET_API_VERSION) != VFIO_API_VERSION ||
        ioctl(container_.Get(), VFIO_CHECK_EXTENSION, VFIO_TYPE1v2_IOMMU) != 1) {
        throw Error(ErrorCode::UNSUPPORTED,
                    name_ + ": this kernel's VFIO has no IOMMU of type 1; load its module (modprobe "
                            "vfio_iommu_type1)");
    }
}

void VfioFunction::OpenGroup() {
    const std::string path = "/dev/vfio/" + VfioGroup(address_, name_);
    group_ = OwnDescriptor(OpenVfioGroup(path, address_, name_));
    vfio_group_status status = {};
    status.argsz = sizeof status;
    if (ioctl(group_.Get(), VFIO_GROUP_GET_STATUS, &status) != 0 ||
        (status.flags & VFIO_GROUP_FLAGS_VIABLE) == 0) {
        ThrowNotViable(address_, name_);
    }
    int container = container_.Get();
    if (ioctl(group_.Get(), VFIO_GROUP_SET_CONTAINER, &container) != 0 ||
        ioctl(container, VFIO_SET_IOMMU, VFIO_TYPE1v2_IOMMU) != 0) {
        ThrowNoTranslation(address_, name_, errno);
    }
}

void VfioFunction::OpenDevice() {
    const int fd = ioctl(group_.Get(), VFIO_GROUP_GET_DEVICE_FD, address_.c_str());
    if (fd < 0) {
        const int error_number = errno;
        throw Error(ErrorCode::IO, name_ + ": the kernel does not hand out the PCI function " + address_ +
                                       ": " + ErrnoText(error_number) + "; look into the kernel log (dmesg)");
    }
    fcntl(fd, F_SETFD, FD_CLOEXEC);
    device_ = OwnDescriptor(fd);
}

void VfioFunction::MapRegisters() {
    config_offset_ = RegionInfo(device_.Get(), VFIO_PCI_CONFIG_REGION_INDEX).offset;
    const vfio_region_info info = RegionInfo(device_.Get(), VFIO_PCI_BAR0_REGION_INDEX);
    registers_offset_ = info.offset;
    registers_bytes_ = info.size;
    void *mapped = MAP_FAILED;
    if (info.size > REGISTER_DOORBELLS && (info.flags & VFIO_REGION_INFO_FLAG_MMAP) != 0) {
        mapped = mmap(nullptr, info.size, PROT_READ | PROT_WRITE, MAP_SHARED, device_.Get(),
                      static_cast<off_t>(info.offset));
    }
    if (mapped == MAP_FAILED) {
        throw Error(ErrorCode::UNSUPPORTED, name_ + ": the registers of PCI function " + address_ +
                                                " cannot be mapped (BAR0 of " + std::to_string(info.size) +
                                                " bytes); use the kernel's driver: rawduck vfio unbind " +
                                                address_);
    }
    madvise(mapped, info.size, MADV_DONTFORK);
    registers_ = static_cast<volatile char *>(mapped);
}

// VFIO leaves it off.
bool VfioFunction::SetBusMaster(bool on) {
    uint16_t command = 0;
    const auto offset = static_cast<off_t>(config_offset_ + PCI_COMMAND);
    if (pread(device_.Get(), &command, sizeof command, offset) != sizeof command) {
        return false;
    }
    const uint16_t without = command & static_cast<uint16_t>(~PCI_COMMAND_MASTER);
    command = on ? command | PCI_COMMAND_MASTER | PCI_COMMAND_MEMORY : without;
    return pwrite(device_.Get(), &command, sizeof command, offset) == sizeof command;
}

//! With a system call: a register that is gone is an error then, and through the mapping a signal (SIGBUS).
std::optional<uint32_t> VfioFunction::Read32(uint32_t offset) {
    uint32_t value = 0;
    const auto at = static_cast<off_t>(registers_offset_ + offset);
    if (pread(device_.Get(), &value, sizeof value, at) != sizeof value) {
        return std::nullopt;
    }
    return value;
}

bool VfioFunction::Write32(uint32_t offset, uint32_t value) {
    const auto at = static_cast<off_t>(registers_offset_ + offset);
    return pwrite(device_.Get(), &value, sizeof value, at) == sizeof value;
}

void VfioFunction::RingDoorbell(uint32_t offset, uint32_t value) {
    RAWDUCK_INVARIANT(registers_ && offset + sizeof value <= registers_bytes_,
                      "a doorbell lies within the registers");
    *reinterpret_cast<volatile uint32_t *>(registers_ + offset) = value;
}

//! Of what the IOMMU tells.
void VfioFunction::ForEachCapability(const std::function<void(const vfio_info_cap_header &)> &look) const {
    alignas(vfio_iommu_type1_info) char buffer[INFO_BYTES] = {};
    auto *info = reinterpret_cast<vfio_iommu_type1_info *>(buffer);
    info->argsz = sizeof buffer;
    const bool told = ioctl(container_.Get(), VFIO_IOMMU_GET_INFO, info) == 0;
    uint32_t at = told && (info->flags & VFIO_IOMMU_INFO_CAPS) != 0 ? info->cap_offset : 0;
    while (at != 0 && at + sizeof(vfio_iommu_type1_info_cap_iova_range) <= sizeof buffer) {
        const auto *header = reinterpret_cast<const vfio_info_cap_header *>(buffer + at);
        look(*header);
        at = header->next;
    }
}

std::vector<IovaRange> VfioFunction::IovaRanges() {
    std::vector<IovaRange> ranges;
    ForEachCapability([&](const vfio_info_cap_header &header) {
        if (header.id == VFIO_IOMMU_TYPE1_INFO_CAP_IOVA_RANGE) {
            const auto &list = reinterpret_cast<const vfio_iommu_type1_info_cap_iova_range &>(header);
            for (uint32_t i = 0; i < list.nr_iovas; i++) {
                ranges.push_back({list.iova_ranges[i].start, list.iova_ranges[i].end});
            }
        }
    });
    return ranges.empty() ? std::vector<IovaRange>{{0, NARROW_LAST}} : ranges;
}

int VfioFunction::MapMemory(void *memory, uint64_t bytes, uint64_t iova) {
    vfio_iommu_type1_dma_map map = {};
    map.argsz = sizeof map;
    map.flags = VFIO_DMA_MAP_FLAG_READ | VFIO_DMA_MAP_FLAG_WRITE;
    map.vaddr = reinterpret_cast<uintptr_t>(memory);
    map.iova = iova;
    map.size = bytes;
    return ioctl(container_.Get(), VFIO_IOMMU_MAP_DMA, &map) == 0 ? 0 : errno;
}

void VfioFunction::UnmapMemory(uint64_t iova, uint64_t bytes) {
    vfio_iommu_type1_dma_unmap unmap = {};
    unmap.argsz = sizeof unmap;
    unmap.iova = iova;
    unmap.size = bytes;
    const bool gone = ioctl(container_.Get(), VFIO_IOMMU_UNMAP_DMA, &unmap) == 0 && unmap.size == bytes;
    RAWDUCK_INVARIANT(gone, "what is unmapped was mapped, or the device could reach what comes next there");
}

//! Kernels before Linux 5.10 do not tell.
uint64_t VfioFunction::MappingsLeft() {
    uint64_t left = UINT64_MAX;
    ForEachCapability([&](const vfio_info_cap_header &header) {
        if (header.id == VFIO_IOMMU_TYPE1_INFO_DMA_AVAIL) {
            left = reinterpret_cast<const vfio_iommu_type1_info_dma_avail &>(header).avail;
        }
    });
    return left;
}

bool VfioFunction::Reset() {
    return ioctl(device_.Get(), VFIO_DEVICE_RESET) == 0 && SetBusMaster(true);
}

// Closing the descriptors does both, too, and nothing works without them.
void VfioFunction::StopDma() {
    SetBusMaster(false);
    vfio_iommu_type1_dma_unmap unmap = {};
    unmap.argsz = sizeof unmap;
    unmap.flags = VFIO_DMA_UNMAP_FLAG_ALL;
    if (ioctl(container_.Get(), VFIO_IOMMU_UNMAP_DMA, &unmap) == 0) {
        return;
    }
    // Kernels before Linux 5.12 have no such flag, but one range for all.
    unmap = {};
    unmap.argsz = sizeof unmap;
    unmap.size = AlignDown(UINT64_MAX, PAGE_BYTES);
    if (ioctl(container_.Get(), VFIO_IOMMU_UNMAP_DMA, &unmap) != 0) {
        Close();
    }
}

uint32_t VfioFunction::InterruptsMax() {
    vfio_irq_info info = {};
    info.argsz = sizeof info;
    info.index = VFIO_PCI_MSIX_IRQ_INDEX;
    const bool told = ioctl(device_.Get(), VFIO_DEVICE_GET_IRQ_INFO, &info) == 0;
    return told && (info.flags & VFIO_IRQ_INFO_EVENTFD) != 0 ? info.count : 0;
}

bool VfioFunction::SetInterrupts(uint32_t index, const std::vector<int> &descriptors) {
    const size_t bytes = descriptors.size() * sizeof(int32_t);
    std::vector<uint32_t> buffer((sizeof(vfio_irq_set) + bytes) / sizeof(uint32_t) + 1);
    auto *set = reinterpret_cast<vfio_irq_set *>(buffer.data());
    set->argsz = static_cast<uint32_t>(sizeof(vfio_irq_set) + bytes);
    set->flags = VFIO_IRQ_SET_ACTION_TRIGGER |
                 (descriptors.empty() ? VFIO_IRQ_SET_DATA_NONE : VFIO_IRQ_SET_DATA_EVENTFD);
    set->index = index;
    set->count = static_cast<uint32_t>(descriptors.size());
    memcpy(set->data, descriptors.data(), bytes);
    return ioctl(device_.Get(), VFIO_DEVICE_SET_IRQS, set) == 0;
}

// The same descriptors again after a reset, though it may have fewer interrupts then: threads may be waiting for them.
std::vector<int> VfioFunction::EnableInterrupts(uint32_t count) {
    while (interrupts_.size() < count) {
        FileDescriptor fresh(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK));
        if (!fresh.IsOpen()) {
            break;
        }
        interrupts_.push_back(std::move(fresh));
    }
    std::vector<int> descriptors;
    for (size_t i = 0; i < std::min<size_t>(count, interrupts_.size()); i++) {
        descriptors.push_back(interrupts_[i].Get());
    }
    SetInterrupts(VFIO_PCI_MSIX_IRQ_INDEX, {});
    if (descriptors.empty() || !SetInterrupts(VFIO_PCI_MSIX_IRQ_INDEX, descriptors)) {
        return {};
    }
    return descriptors;
}

void VfioFunction::AskForRemoval() {
    FileDescriptor fd(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK));
    if (fd.IsOpen() && SetInterrupts(VFIO_PCI_REQ_IRQ_INDEX, {fd.Get()})) {
        removal_ = std::move(fd);
    }
}

} // namespace rawduck

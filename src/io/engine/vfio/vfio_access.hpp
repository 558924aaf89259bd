//! Whether this process may drive a PCI function by itself, and if not, what to do about it.
#pragma once

#include <string>

namespace rawduck {

//! The number of the IOMMU group of a PCI function that vfio-pci has. Throws Error NOT_FOUND, or UNSUPPORTED:
//! no IOMMU, another driver.
std::string VfioGroup(const std::string &address, const std::string &name);

//! Opens a group, which one process at a time may. Waits for a process that is being ended. Throws Error LOCKED
//! naming who has it, or as ThrowVfioOpenError.
int OpenVfioGroup(const std::string &path, const std::string &address, const std::string &name);

[[noreturn]] void ThrowVfioOpenError(const std::string &name, const std::string &address,
                                     const std::string &path, int error_number);
//! The group has functions that other drivers have.
[[noreturn]] void ThrowNotViable(const std::string &address, const std::string &name);
//! The IOMMU does not take the group.
[[noreturn]] void ThrowNoTranslation(const std::string &address, const std::string &name, int error_number);

} // namespace rawduck

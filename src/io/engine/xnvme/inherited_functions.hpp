//! PCI functions that a library has opened, kept from children of this process.
#pragma once

#include <vector>

namespace rawduck {

//! A forked child that has a descriptor or a mapping of a function keeps it from others, also when this process is gone,
//! and a program that is started has the descriptors. Not thread-safe.
class InheritedFunctions {
  public:
    //! What this process has open of VFIO.
    static std::vector<int> Descriptors();
    //! Of those that are open now and were not in `before`: a child closes them, and has no mapping of them.
    void Keep(const std::vector<int> &before);
    //! Before the library closes some of them, and after.
    void Release();
    void KeepTheRest();

  private:
    std::vector<int> descriptors_, released_;
};

} // namespace rawduck

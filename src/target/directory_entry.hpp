//! Names in directories of ordinary file systems, made durable.
#pragma once

#include "target/system/file_descriptor.hpp"

#include <string>

namespace rawduck {

//! "." of a path without one.
std::string DirectoryOf(const std::string &path);

//! Makes it durable that a name was given, changed or taken away. Made before that happens: what would keep it from being
//! durable, as a directory that cannot be opened, is found out while nothing is changed.
class EntryFlush {
  public:
    //! For the name that `path` ends with. `file`: what has a name there already, itself or what is to be renamed to it;
    //! empty where a file is to be made. Throws Error PERMISSION, DESCRIPTORS or IO. Not where the directory is missing,
    //! which is left to who changes something in it.
    explicit EntryFlush(const std::string &path, const std::string &file = "");

    //! `made`: the file that was made, open. Throws Error IO.
    void Run(int made = -1) const;

  private:
    const std::string directory_;
    FileDescriptor fd_;                //!< of the directory, or of `file`
    bool flushes_file_system_ = false; //!< since the directory cannot be opened
};

} // namespace rawduck
